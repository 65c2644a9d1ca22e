-- Says who holds a lock. Changes nothing.
--
-- KEYS[1]  the lock
-- Replies  {'none', waiters}                      nobody
--          {'string', token, ms, note, waiters}   the holder's token, how long the record lasts (-1:
--                                                 for ever), and the note beside it as describe.lua
--                                                 keeps it, whoever's it is ('' if there is none)
--          {what}                                 the key is in use for something that is not a lock
-- where waiters is how many stand in the queue, or -1 if this user may not know.
local function waiters()
  local count = redis.pcall('ZCARD', KEYS[1] .. ':quorlock:queue')
  return type(count) == 'number' and count or -1
end

local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  return {kind, waiters()}
end
if kind ~= 'string' then
  return {kind}
end
local token = redis.call('GET', KEYS[1])
-- No token is so long, and a text of any size would fill the connection.
if #token > 1024 then
  return {'string of ' .. #token .. ' bytes'}
end
local note = redis.pcall('GET', KEYS[1] .. ':quorlock:holder')
if type(note) ~= 'string' or #note > 1024 then
  note = ''
end
return {kind, token, redis.call('PTTL', KEYS[1]), note, waiters()}
