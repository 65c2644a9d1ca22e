-- Passes a lock on to the first in its queue who is still there. Stands between the record of its
-- dialect and a verb.
--
-- The queue of a lock lies beside it, in two keys that go when nobody is left in it:
--   LOCK:quorlock:queue    a sorted set: the token of each ticket, by its ticket number
--   LOCK:quorlock:waiters  a hash: for each token "CHANNEL TICKET TTL_MS SENT_NS LEAST BLOCK SEEN_US", of
--                          the latest request with that ticket, with the fences that it wants, and
--                          when it was seen by this server's clock
-- They are not among KEYS: a user without rights to them could release nothing then.
--
-- The grant message goes to CHANNEL as "TICKET SENT_NS OTHERS FENCE", where OTHERS is how many are left in
-- the queue, and FENCE the fence. TICKET is the waiter and a secret of that very request, by which the client
-- knows that the message is ours: it is shown to nobody else. A client that is gone receives nothing, and is
-- passed over at once. So is one that seems to listen and has not asked for longer than any waiter goes without
-- asking again: its machine may have died, and the server not know yet that the connection is dead.
--
-- Why the new holder may count its lease from SENT_NS, which is on its own clock: that request was
-- sent before it arrived here, and it arrived before this runs. The record ends TTL_MS after this
-- moment by this server's clock, so not before SENT_NS + TTL_MS, but for how the clocks drift.
-- SENT_NS and TTL_MS must therefore come from one and the same request.
--

-- Then the client that stood here has long stopped asking.
local function forgotten_ms(ttl_ms)
  return math.max(TICKET_TTLS * ttl_ms, TICKET_LEAST_MS)
end

-- lock     the key of the lock
-- me       the token that asks: if it is the first, the record is left to the caller
-- next     the least fence for another that gets it
-- Returns  the token whose turn it is: the record is its own, and it has been notified, unless it is me
--          false and perhaps an error: no waiter is there, or none can be notified, and there is no
--          record any more
local function pass_on(lock, me, next)
  local queue = lock .. ':quorlock:queue'
  while true do
    local head = redis.pcall('ZPOPMIN', queue)
    local token = head[1]
    if not token then
      left_in_queue(head.err and head or 0)
      drop(lock)
      return false, head.err and head
    end
    local waiters = lock .. ':quorlock:waiters'
    local waiter = redis.pcall('HGET', waiters, token)
    redis.pcall('HDEL', waiters, token)
    local others = redis.pcall('ZCARD', queue)
    left_in_queue(others)
    if token == me then
      return me
    end
    if type(waiter) == 'string' then
      -- As text throughout: SENT_NS has more digits than a number in Lua.
      local channel, ticket, ttl, sent, least, block, seen =
        waiter:match('^(.+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
      local asked = now() <= tonumber(seen) + forgotten_ms(tonumber(ttl)) * 1000
      -- Before the message, which must not be sent if this fails.
      local fence = asked
        and take(lock, token, ttl, math.max(next, tonumber(least)), tonumber(block), seen)
      if type(others) == 'table' then
        others = 0
      end
      -- A waiter that wants a fence that no holder can be given is passed over.
      if type(fence) == 'number' then
        local message = ticket .. ' ' .. sent .. ' ' .. others .. ' ' .. string.format('%.0f', fence)
        local heard = redis.pcall('PUBLISH', channel, message)
        if type(heard) == 'table' then
          -- A client that may not publish must not empty the queue by passing all waiters over.
          drop(lock)
          return false, heard
        end
        if heard > 0 then
          return token
        end
      end
    end
  end
end

-- Releases a lock: it is passed on, or free if no waiter is there, or none may have it now.
local function release_record(lock, me, next)
  local waiting = redis.pcall('ZCARD', lock .. ':quorlock:queue')
  left_in_queue(waiting)
  if type(waiting) == 'table' or waiting == 0 or not may_pass_on() or fence_refusal(lock, next) then
    return drop(lock)
  end
  repeat
    local turn = pass_on(lock, me, next)
  until turn ~= me
end
