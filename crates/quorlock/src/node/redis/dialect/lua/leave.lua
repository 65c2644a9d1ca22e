-- Ends a participant's part in a lock that another process has made. The last one drops the lock, or passes it
-- on to the first in its queue. Stands behind pass_on.lua and participants.lua.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token
-- ARGV[2]  the least fence for the waiter that it is passed on to
-- ARGV[3]  who takes part
-- Replies  2 others hold it still
--          1 it is free or another's now
--          0 there is none, or another's, or who takes part is not listed: it was not changed
local lock, me = KEYS[1], ARGV[1]
local owner, err = read(lock)
if err then
  return err
end
if owner ~= me or not is_listed(ARGV[3]) then
  return 0
end
if leave_to_others(ARGV[3], lock, me) then
  return 2
end
release_record(lock, me, tonumber(ARGV[2]))
return 1
