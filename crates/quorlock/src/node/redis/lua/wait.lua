-- Takes a lock if it is our turn, or keeps it if it is ours; otherwise takes or keeps a place in its
-- queue. Stands behind pass_on.lua.
--
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  how long to keep the record from the moment it becomes ours, in ms
-- ARGV[3]  our client, for word of a grant
-- ARGV[4]  our waiter, the same
-- ARGV[5]  when this was sent, in ns on our own clock
-- ARGV[6]  the number of our ticket
-- ARGV[7]  'agreed': exactly that number. 'new': the place that we have, or one behind everybody,
--          with that number at least
-- ARGV[8]  'yield': if it is ours, and somebody stands before us, let him have it. 'keep' otherwise
-- Replies  1                    it is ours, and lasts at least so long
--          {number}             our place; it was passed on to another this moment
--          {number, token, ms}  our place, the holder's token, and how long the record lasts (-1: for
--                               ever)
--
-- A record that has ended without a release goes to the first in the queue, whoever asks. As to why
-- the new holder may count its lease from ARGV[5], see pass_on.lua. What is kept of a ticket is
-- always of one request; an older one that arrives late makes the lease end earlier, never later.
local lock, me, ttl_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
local queue, waiters = lock .. ':quorlock:queue', lock .. ':quorlock:waiters'
-- Three leases, or three seconds: then whoever stood here has long stopped asking.
local forgotten_ms = math.max(3 * ttl_ms, 3000)

local function take_place()
  local number = ARGV[6]
  if ARGV[7] == 'new' then
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    if last and tonumber(last) >= tonumber(number) then
      -- Whoever proposes less, as with a clock that is behind, still pushes nobody aside. All digits:
      -- as text, Lua would write 1.79e+15.
      number = string.format('%.0f', tonumber(last) + 1)
    end
    if redis.call('ZADD', queue, 'NX', number, me) == 0 then
      number = string.format('%.0f', tonumber(redis.call('ZSCORE', queue, me)))
    end
  else
    redis.call('ZADD', queue, number, me)
  end
  redis.call('HSET', waiters, me, table.concat({ARGV[3], ARGV[4], ARGV[2], ARGV[5]}, ' '))
  -- Not every time: whoever waits asks again before two thirds of it are over.
  if redis.call('PTTL', queue) < forgotten_ms * 5 / 6 then
    redis.call('PEXPIRE', queue, forgotten_ms)
    redis.call('PEXPIRE', waiters, forgotten_ms)
  end
  return number
end

-- An error as a reply of its own: its code then comes first with every version of the server.
local owner = redis.pcall('GET', lock)
if type(owner) == 'table' then
  return owner
end
if owner == me and ARGV[8] ~= 'yield' then
  if redis.call('PTTL', lock) < ttl_ms then
    redis.call('PEXPIRE', lock, ARGV[2])
  end
  return 1
end
-- No token is so long, and a text of any size would fill the connection.
if owner and #owner > 1024 then
  return redis.error_reply('WRONGTYPE it holds a string of ' .. #owner .. ' bytes')
end

local number = take_place()
if owner and owner ~= me then
  return {number, owner, redis.call('PTTL', lock)}
end
local left_ms = redis.call('PTTL', lock)
local turn, refused = pass_on(lock, me)
if turn == me then
  redis.call('SET', lock, me, 'PX', string.format('%.0f', math.max(ttl_ms, left_ms)))
  return 1
end
return refused or {number}
