-- Says who holds a lock. Changes nothing. Stands behind the record of its dialect.
--
-- KEYS[1]  the lock
-- Replies  {'free', waiters, quarantine}          nobody
--          {'held', token, ms, note, waiters, fence, quarantine}
--                                                 the holder's token, how long the record lasts (-1:
--                                                 for ever), the note beside it as set_note.lua keeps
--                                                 it, of any holder ('' if there is none), and the
--                                                 holder's last fence (0 if it has none)
--          {what}                                 the key is in use for something that is not a lock
-- where waiters is how many stand in the queue, or -1 if this user may not know, and quarantine for how
-- many ms the server casts no vote.
local lock = KEYS[1]

local function waiters()
  local count = redis.pcall('ZCARD', lock .. ':quorlock:queue')
  return type(count) == 'number' and count or -1
end

local kind = redis.call('TYPE', lock).ok
if kind ~= 'none' and kind ~= 'string' then
  return {kind}
end
local owner, err, what = read(lock)
if err then
  return what and {what} or err
end
if not owner or not is_live() then
  return {'free', waiters(), quarantine_ms()}
end
local note = redis.pcall('GET', lock .. ':quorlock:holder')
if type(note) ~= 'string' or #note > 1024 then
  note = ''
end
-- A fence that no reply can carry exactly is none that the client believes.
local fence = math.min(last_fence(lock), 2 ^ 53)
return {'held', owner, left_ms(lock), note, waiters(), fence, quarantine_ms()}
