-- Keeps a note about the holder of a lock beside it, if the lock is ours. Stands behind the record of
-- its dialect.

--   LOCK:quorlock:holder  a string: "#DIGEST NOTE", with the digest of the holder's token
-- It is not removed when the lock runs out or is taken by another: the digest shows that it is old.
--
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  what to keep; '' to remove it
-- ARGV[3]  how long to keep it, in ms
-- Replies  1 it was ours, and the note is there or gone
--          0 there is none, or another's: nothing was changed
local note = KEYS[1] .. ':quorlock:holder'
if read(KEYS[1]) ~= ARGV[1] or not is_live() then
  return 0
end
if ARGV[2] == '' then
  redis.call('DEL', note)
else
  redis.call('SET', note, ARGV[2], 'PX', ARGV[3])
end
return 1
