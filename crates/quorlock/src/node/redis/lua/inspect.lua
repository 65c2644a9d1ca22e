-- Says who holds a lock. Changes nothing.
--
-- KEYS[1]  the lock
-- Replies  {'none'}               nobody
--          {'string', token, ms}  the holder's token, and how long the record lasts (-1: for ever)
--          {what}                 the key is in use for something that is not a lock
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'string' then
  return {kind}
end
local token = redis.call('GET', KEYS[1])
-- No token is so long, and a text of any size would fill the connection.
if #token > 1024 then
  return {'string of ' .. #token .. ' bytes'}
end
return {kind, token, redis.call('PTTL', KEYS[1])}
