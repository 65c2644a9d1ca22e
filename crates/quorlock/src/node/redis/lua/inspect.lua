-- Says who holds a lock. Changes nothing.
--
-- KEYS[1]  the lock
-- Replies  {'none'}               nobody
--          {'string', token, ms}  the holder's token, and how long the record lasts (-1: for ever)
--          {type}                 the key is in use for something that is not a lock
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'string' then
  return {kind}
end
return {kind, redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}
