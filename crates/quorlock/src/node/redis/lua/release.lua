-- Drops a lock if it is ours.
--
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- Replies  1 it was ours and is gone
--          0 there is none, or somebody else's: nothing was changed
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
