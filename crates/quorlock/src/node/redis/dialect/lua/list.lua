-- Names some of the locks of this database. Stands behind the record of its dialect.
--
-- ARGV[1]  where to go on: '0' at first, then what the last reply said
-- ARGV[2]  a pattern for the keys of all locks
-- ARGV[3]  how many bytes stand before the name in them
-- Replies  {where to go on, name, name, ...}, with '0' at the end
--
-- Looks at so many keys at the most that no other client has to wait for long, and ends earlier when it
-- has enough to fill a reply.
local cursor, prefix = ARGV[1], tonumber(ARGV[3])
local reply, looks = {'0'}, 0
repeat
  local found = redis.call('SCAN', cursor, 'MATCH', ARGV[2], 'COUNT', 32, 'TYPE', 'string')
  cursor = found[1]
  for _, key in ipairs(found[2]) do
    -- A user may not see all keys.
    if #key - prefix <= 512 and is_held(key) then
      reply[#reply + 1] = key:sub(prefix + 1)
    end
  end
  looks = looks + 1
until cursor == '0' or looks == 32 or #reply > 32
reply[1] = cursor
return reply
