-- Takes a lock if it is our turn, or keeps it if it is ours; otherwise takes or keeps a place in its
-- queue. Stands behind pass_on.lua and participants.lua.
--
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  how long to keep the record from the moment it becomes ours, in ms
-- ARGV[3]  the channel of our client, for the grant message
-- ARGV[4]  our ticket's waiter and the secret of this request, to be repeated there
-- ARGV[5]  when this was sent, in ns on our own clock
-- ARGV[6]  our ticket number
-- ARGV[7]  'agreed': exactly that ticket number. 'new': the place that we have, or one behind everybody,
--          with that number at least
-- ARGV[8]  'yield': if it is ours, and a waiter stands before us, leave it to that one, unless another process
--          takes part in it already. 'keep' otherwise
-- ARGV[9]  the least fence for us, and for another that gets it by this
-- ARGV[10] how many fences we want; 0 for none
-- Replies  n >= 0                  it is ours, lasts at least so long, and our last fence is n
--          {ticket_no}             our place; it was passed on to another this moment
--          {ticket_no, token, ms}  our place, the holder's token, and how long the record lasts (-1: for
--                                  ever)
--          or a refusal of the dialect
--
-- A record that has ended without a release goes to the first in the queue, whichever client asks. As to why
-- the new holder may count its lease from ARGV[5], see pass_on.lua. What is kept of a ticket is
-- always of one request; an older one that arrives late makes the lease end earlier, never later.
local lock, me, ttl_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
local queue, waiters = lock .. ':quorlock:queue', lock .. ':quorlock:waiters'
local forgotten = forgotten_ms(ttl_ms)

local function take_place()
  local place = ARGV[6]
  if ARGV[7] == 'new' then
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    if last and tonumber(last) >= tonumber(place) then
      -- A client that proposes less, as with a clock that is behind, still overtakes no other. All digits:
      -- as text, Lua would write 1.79e+15.
      place = string.format('%.0f', tonumber(last) + 1)
    end
    if redis.call('ZADD', queue, 'NX', place, me) == 0 then
      place = string.format('%.0f', tonumber(redis.call('ZSCORE', queue, me)))
    end
  else
    redis.call('ZADD', queue, place, me)
  end
  local ticket = {ARGV[3], ARGV[4], ARGV[2], ARGV[5], ARGV[9], ARGV[10], now_us()}
  redis.call('HSET', waiters, me, table.concat(ticket, ' '))
  -- Not every time: a waiter asks again before two thirds of it are over.
  if redis.call('PTTL', queue) < forgotten * 5 / 6 then
    redis.call('PEXPIRE', queue, forgotten)
    redis.call('PEXPIRE', waiters, forgotten)
  end
  return place
end

local refusal = vote_refusal()
if refusal then
  return refusal
end
-- An error as a reply of its own: its code then comes first with every version of the server.
local owner, err = read(lock)
if err then
  return err
end
local least, block = tonumber(ARGV[9]), tonumber(ARGV[10])
-- Before a place is taken that could not be served. Where fences end, one more and one less is not the same one.
local last = least + (block - 1)
refusal = block > 0 and fence_refusal(lock, last)
if refusal then
  return refusal
end
if owner == me and (ARGV[8] ~= 'yield' or is_shared()) then
  -- It may have been stored with a ticket from long ago, which came back from an old file: fences that
  -- were given out since, and forgotten, are below what we want now.
  if block > 0 and last_fence(lock) < last then
    raise(lock, last)
  end
  return keep_for('maker', lock, me, ARGV[2])
end

local place = take_place()
if owner and owner ~= me and is_live() then
  queued_behind(lock)
  return {place, owner, left_ms(lock)}
end
local keep_ms = owner == me and math.max(ttl_ms, left_ms(lock)) or ttl_ms
-- A waiter that gets it instead has no lower fence than we want, for the same reason.
local turn, refused = pass_on(lock, me, least)
if turn ~= me then
  return refused or {place}
end
keep_ms = string.format('%.0f', keep_ms)
local fence = take(lock, me, keep_ms, least, block)
if type(fence) ~= 'number' then
  -- Waiters before us that could not be notified have used up the fences: the record must not stay with one
  -- of them. A client that yields does not count on it either.
  drop(lock)
end
return fence
