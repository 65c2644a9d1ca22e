-- Writes which set of nodes this server belongs to, or only reads it. Stands behind the record of its dialect.
--
-- ARGV[1]  'look'; or 'mark', and then
-- ARGV[2]  the marker that was seen; '' for none. If another is there, nothing is changed
-- ARGV[3]  how the marker to be begins, ARGV[5] how it ends; between them from when on it counts
-- ARGV[4]  in how many us that is; '0' for at once
-- Replies  {marker, now}  what is there then; '' for nothing; and this server's time in us
--          or a refusal of the dialect
local refusal = clock_refusal()
if refusal then
  return refusal
end
local marker = redis.call('GET', MARKER) or ''
if ARGV[1] == 'mark' and marker == ARGV[2] then
  local from = ARGV[4] == '0' and 0 or now() + ARGV[4]
  marker = ARGV[3] .. string.format('%016.0f', from) .. ARGV[5]
  redis.call('SET', MARKER, marker)
end
return {marker, now_us()}
