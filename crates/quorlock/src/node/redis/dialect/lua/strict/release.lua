-- The common case of release.lua in the `strict` dialect, where nobody waits, in one piece: each function
-- that is made costs as much as a command, and a new text of some length half as much. Whatever is not
-- common falls through to the record of the dialect, pass_on.lua and release.lua, which stand behind it
-- and do the same step by step.
--
-- Keys, arguments and replies are those of release.lua, and of record.lua.
--
-- Only the byte behind the fence changes.
local record = redis.pcall('GET', KEYS[1])
if type(record) == 'string' and record:byte(26) == 32 and record:find(ARGV[1], 27, true) == 27
  and record:byte(27 + #ARGV[1]) == 32
  and type(redis.pcall('SETRANGE', KEYS[1], '25', '-')) == 'number' then
  return 1
end
