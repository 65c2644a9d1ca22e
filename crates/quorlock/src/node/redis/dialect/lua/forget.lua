-- Forgets locks that are free: the last fence of each, in whichever dialect it lies. Stands alone.
--
-- KEYS     the locks
-- Replies  how many of them are held or wanted, and were not changed
--
-- A user without rights to queues and to the second key of a lock forgets the first: to it every
-- queue is empty.
local kept = 0
for _, lock in ipairs(KEYS) do
  local record = redis.call('GET', lock)
  local waiting = redis.pcall('ZCARD', lock .. ':quorlock:queue')
  local wanted = type(waiting) == 'number' and waiting > 0
  if not wanted and (not record or record:find('^quorlock %d+[=-]')) then
    redis.call('DEL', lock)
    redis.pcall('DEL', lock .. ':quorlock:fence')
  else
    kept = kept + 1
  end
end
return kept
