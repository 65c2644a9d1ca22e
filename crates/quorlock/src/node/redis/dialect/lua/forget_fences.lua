-- Forgets the fences of locks that no holder can have been given, in whichever dialect they lie. Stands alone.
--
-- In the `strict` dialect the fence is part of the record, and the holder of the lock on this server loses it
-- there.
--
-- KEYS     the locks
-- ARGV[1]  the highest fence that a holder can have been given
-- Replies  how many of them are forgotten
local forgotten = 0
for _, lock in ipairs(KEYS) do
  local fence_key = lock .. ':quorlock:fence'
  local record = redis.pcall('GET', lock)
  local fence = type(record) == 'string' and record:match('^quorlock (%d+)[ +*=-]')
  local key = fence and lock or fence_key
  fence = fence or redis.pcall('GET', fence_key)
  if type(fence) == 'string' and (tonumber(fence) or math.huge) > tonumber(ARGV[1]) then
    redis.call('DEL', key)
    forgotten = forgotten + 1
  end
end
return forgotten
