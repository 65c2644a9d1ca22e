-- The common case of acquire.lua in the `redlock` dialect, in one piece: each function that is made costs
-- as much as a command, and so does each number that is written as text. What is not common falls
-- through to the record of the dialect and acquire.lua, which stand behind it and do the same step by
-- step.
--
-- Keys, arguments and replies are those of acquire.lua.
local fence_key, block = KEYS[1] .. ':quorlock:fence', tonumber(ARGV[4])
local last = block > 0 and redis.pcall('GET', fence_key)
-- What is no number is left to the slow path, which says so.
if type(last) == 'string' then
  last = tonumber(last) or {}
end
local fence, text = tonumber(ARGV[3]), ARGV[3]
if last and type(last) ~= 'table' and last + block > fence then
  fence, text = last + block, nil
end
-- From 2^53 on one more is not another number for Lua.
if block > 0 and type(last) ~= 'table' and fence < 9007199254740992 then
  if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return -1
  end
  redis.call('SET', fence_key, text or string.format('%.0f', fence), 'PX', '86400000')
  return fence
end
