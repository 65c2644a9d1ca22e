-- The common case of release.lua in the `strict` dialect, where nobody waits, in one piece: each function
-- that is made costs as much as a command. Whatever is not common falls through to the record of the
-- dialect, pass_on.lua and release.lua, which stand behind it and do the same step by step.
--
-- Keys, arguments and replies are those of release.lua, and of record.lua.
local record = redis.pcall('GET', KEYS[1])
local number, _, owner = (type(record) == 'string' and record or ''):match(RECORD)
if owner == ARGV[1] and redis.pcall('ZCARD', KEYS[1] .. ':quorlock:queue') == 0 then
  local freed = redis.pcall('SET', KEYS[1], 'quorlock ' .. number .. ' 0 ', 'PX', KEPT_MS)
  if freed.ok then
    return 1
  end
end
