-- Sets a value, unless a later holder of its lock was here before. For any Redis or Valkey server from
-- 4.0 on, which need not be one that keeps the lock.
--
-- KEYS[1]  the value: a hash with the fields `value` and `fence`
-- ARGV[1]  the fence of the holder, Guard::fence
-- ARGV[2]  the new value; without it no lower fence is taken from now on, and the value stays
-- Replies  1 done
--          0 refused, and nothing was changed: a later holder was here. It is in `fence`
--
-- Readers need no script: HGET KEYS[1] value.
-- Fences are compared as texts, as Lua's own lose their last digits beyond 2^53.
local function is_lower(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

local fence, value = ARGV[1], ARGV[2]
if not string.match(fence, '^[1-9]%d*$') then
  return redis.error_reply('ERR the fence of a holder is in digits and not zero: ' .. fence)
end
if is_lower(fence, redis.call('HGET', KEYS[1], 'fence') or '0') then
  return 0
end
redis.call('HSET', KEYS[1], 'fence', fence)
if value then
  redis.call('HSET', KEYS[1], 'value', value)
end
return 1
