-- Keeps a lock longer if it is ours. Never creates one, never shortens one.
--
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  how long to keep it from now on, in ms
-- Replies  1 it was ours and lasts at least so long
--          0 there is none, or somebody else's: nothing was changed
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
