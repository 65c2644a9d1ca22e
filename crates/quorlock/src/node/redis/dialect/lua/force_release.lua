-- Drops a lock of any holder, or passes it on to the first in its queue, if its holder is the one
-- that was seen. Stands behind pass_on.lua.
--
-- KEYS[1]  the lock
-- ARGV[1]  the holder: '#' and the first 8 hexadecimal digits of the SHA-1 of its token
-- Replies  1 it was that holder's, and is free or another's now
--          0 there is none, or another's: it was not changed
--
-- A user without rights to queues still breaks locks: to it every queue is empty.
local owner, err = read(KEYS[1])
if err then
  return err
end
if not owner or '#' .. redis.sha1hex(owner):sub(1, 8) ~= ARGV[1] then
  return 0
end
redis.pcall('DEL', KEYS[1] .. ':quorlock:holder')
release_record(KEYS[1], '', newest())
return 1
