-- Drops a lock if it is ours, or passes it on to the first in its queue. Our own place in the queue
-- is gone either way. Stands behind pass_on.lua and participants.lua.
--
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  the least fence for the waiter that it is passed on to
-- ARGV[3]  in the redlock dialect, 'queued' if we may have a place in the queue
-- Replies  2 it was ours, and others hold it still who take part in it
--          1 it was ours, and is free or another's now
--          0 there is none, or another's: it was not changed
--
-- A user without rights to queues still releases: to it every queue is empty.
local lock, me = KEYS[1], ARGV[1]
local owner, err = read(lock)
if err then
  return err
end
if owner ~= me then
  if redis.pcall('ZREM', lock .. ':quorlock:queue', me) == 1 then
    redis.pcall('HDEL', lock .. ':quorlock:waiters', me)
  end
  return 0
end
if leave_to_others('maker', lock, me) then
  return 2
end
release_record(lock, me, tonumber(ARGV[2]))
return 1
