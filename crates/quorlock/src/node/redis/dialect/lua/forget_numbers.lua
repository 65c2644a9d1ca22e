-- Forgets the numbers of locks that nobody can have been given, in whichever dialect they lie. Stands alone.
--
-- In the `strict` dialect the number is part of the record, and whoever holds the lock on this server loses it
-- there.
--
-- KEYS     the locks
-- ARGV[1]  the highest number that somebody can have been given
-- Replies  how many of them are forgotten
local forgotten = 0
for _, lock in ipairs(KEYS) do
  local fence = lock .. ':quorlock:fence'
  local record = redis.pcall('GET', lock)
  local number = type(record) == 'string' and record:match('^quorlock (%d+)[ +*=-]')
  local key = number and lock or fence
  number = number or redis.pcall('GET', fence)
  if type(number) == 'string' and (tonumber(number) or math.huge) > tonumber(ARGV[1]) then
    redis.call('DEL', key)
    forgotten = forgotten + 1
  end
end
return forgotten
