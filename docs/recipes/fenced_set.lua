-- Sets a value, unless a later holder of its lock was here before. For any Redis or Valkey server from
-- 4.0 on, which need not be one that keeps the lock.
--
-- KEYS[1]  the value: a hash with the fields `value` and `fence`
-- ARGV[1]  the number of the holder, Guard::fence
-- ARGV[2]  the new value; without it no lower number is taken from now on, and the value stays
-- Replies  1 done
--          0 refused, and nothing was changed: a later holder was here. Its number is in `fence`
--
-- Readers need no script: HGET KEYS[1] value.
-- The numbers are compared as texts, as Lua's own lose their last digits beyond 2^53.
local function is_lower(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

local number, value = ARGV[1], ARGV[2]
if not string.match(number, '^[1-9]%d*$') then
  return redis.error_reply('ERR the number of a holder is in digits and not zero: ' .. number)
end
if is_lower(number, redis.call('HGET', KEYS[1], 'fence') or '0') then
  return 0
end
redis.call('HSET', KEYS[1], 'fence', number)
if value then
  redis.call('HSET', KEYS[1], 'value', value)
end
return 1
