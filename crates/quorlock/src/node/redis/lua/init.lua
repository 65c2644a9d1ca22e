-- Marks this start of the server as one that has nothing to forget. Stands alone.
--
-- KEYS[1]  the marker of the node, as strict/record.lua keeps it
-- ARGV[1]  the marker that was seen; '' for none
-- ARGV[2]  the marker to be
-- Replies  1 it is there
--          0 there is another than was seen: nothing was changed
local marker = redis.call('GET', KEYS[1]) or ''
if marker == ARGV[2] then
  return 1
end
if marker ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
