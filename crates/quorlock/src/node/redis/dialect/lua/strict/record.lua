-- The record of a lock in the `strict` dialect. Stands before the verbs.
--
--   LOCK            a string: "quorlock FENCE TOKEN SECONDS MICROS TTL_MS". It ends TTL_MS after that
--                   moment of this server's clock, which is written as TIME tells it. The end is
--                   compared by the verbs alone: the key has no expiry of the server's, which could throw
--                   it away before its time. What no client has used for a day goes by tend.lua. The fence
--                   has 16 digits, so that the byte behind it has a place of its own, and says how the
--                   lock is:
--                     ' ' held    '+' held, and a waiter may stand in its queue
--                     '*' the same, and others may hold it with the same token: behind the token
--                         stands who does (participants.lua)
--                     '-' free    '=' free, and a waiter may stand in its queue
--                   The fence of a free one stays. Fences follow the clock, so that any new one is
--                   higher a day later
--   PREFIX:quorlock:set   a string: the marker, which says which set of nodes this server belongs to. Only if
--                   it begins as the client says, with the moment from which on it votes behind that, the
--                   server casts votes. It was started or emptied otherwise, and may have forgotten
--                   votes; or it belongs to another set, whose majorities need not meet ours
--
-- The client's settings stand before all of it, as constants:
-- BEHIND_US  how far this server's clock may be behind a client's, for a request to be looked at
-- AHEAD_US   how far it may be ahead
-- MARKER     the key of the marker
-- QUIET_US   how long at the most it casts no vote, once it belongs to the set
-- RECORD     the pattern of a record, with all its parts
-- FENCES_AHEAD_US  how far a fence may be ahead of the client's time of day
--
-- The last arguments of each call say when it was sent, and over which connection:
-- ARGV[#ARGV - 1]  the client's time of day then, in us
-- ARGV[#ARGV]      "formed RUN_ID DIGEST ", as the marker of a server begins that votes: with the run id that
--                  the connection's greeting gave, and the digest of what all clients have to agree on,
--                  the set of nodes and the settings that their promises rest on
--
-- Why it holds: a record of A's last request, sent at p by A's clock, ends at p - behind + TTL or later
-- by this server's. A client that replaces it asked at q, and q + ahead is later than that. So q is later than
-- p + TTL - behind - ahead, whatever this server's clock has done in between; and that is when A's
-- holder stops believing in it. A request outside of the window changes nothing at all.
local NOW
local function now()
  if not NOW then
    local time = redis.call('TIME')
    NOW = time[1] * 1000000 + time[2]
  end
  return NOW
end

-- As text, Lua would write 1.79e+15.
local function digits(number)
  return string.format('%.0f', number)
end

local function now_us()
  return digits(now())
end

-- May the node look at this request? Nothing, or the refusal.
local function clock_refusal()
  local sent = tonumber(ARGV[#ARGV - 1])
  if now() < sent - BEHIND_US or now() > sent + AHEAD_US then
    return {'CLOCK', now_us()}
  end
end

-- How this server stands to the client's set of nodes, and its marker:
--   'votes'
--   'quiet'  it carries no set, or has not carried ours for long enough: what it was granted and forgotten
--            may count yet
--   'other'  it belongs to another set, or ours was replaced
local function standing()
  local id, marker = ARGV[#ARGV], redis.call('GET', MARKER) or ''
  if marker:sub(1, #id) == id and (tonumber(marker:sub(#id + 1, #id + 16)) or now() + 1) <= now() then
    return 'votes', marker
  end
  local state, set = marker:match('^(%l+) %S+ (%S+) ')
  if marker == '' or state == 'blank' or state ~= 'closed' and set == id:match('(%S+) $') then
    return 'quiet', marker
  end
  return 'other', marker
end

-- For how long it casts no vote, as far as it is known.
local function quarantine_ms()
  local state, marker = standing()
  if state == 'votes' then
    return 0
  end
  -- The marker of a set that forms has another state before the rest.
  local id, begun = ARGV[#ARGV], marker:gsub('^forming ', 'formed ')
  local from = begun:sub(1, #id) == id and tonumber(begun:sub(#id + 1, #id + 16))
  -- One that is due waits for other nodes.
  return math.max(math.ceil((from and from - now() or QUIET_US) / 1000), 1)
end

-- Is this server of the client's set, so that what it holds there counts? Nothing, or the refusal.
local function set_refusal()
  local state, marker = standing()
  if state == 'other' then
    return {'MARKER', marker, now_us()}
  end
end

-- May the node vote? Nothing, or the refusal.
local function vote_refusal()
  local refusal = clock_refusal()
  if refusal then
    return refusal
  end
  local state, marker = standing()
  if state ~= 'votes' then
    return {'MARKER', marker, now_us()}
  end
end

-- A release has no vote of its own to cast. But whom it passes the lock on to gets one, and none is cast by
-- a clock that cannot be relied upon.
local function may_pass_on()
  return not clock_refusal() and standing() == 'votes'
end

-- What lies on the server, of the lock that was read last.
local fence, expiry, owner, waited, shares = 0, 0, '', false, ''

-- The holder's token, even if its time is over, or false; and an error if the key holds something else.
local function read(lock)
  fence, expiry, owner, waited, shares = 0, 0, '', false, ''
  local record = redis.pcall('GET', lock)
  if type(record) == 'table' then
    return false, record
  end
  if record then
    local c, state, token, seconds, micros, ttl_ms = record:match(RECORD)
    if state == '*' then
      token, shares = token:match('^(%S*)(.*)$')
    end
    -- No token is so long, and a text of any size would fill the connection.
    if not c or #token > 1024 then
      local what = record:sub(1, 3) == 'ql:' and 'a lock of the redlock dialect'
        or 'a string of ' .. #record .. ' bytes that is no lock of this dialect'
      return false, redis.error_reply('WRONGTYPE it holds ' .. what)
    end
    fence, expiry = tonumber(c), seconds * 1000000 + micros + ttl_ms * 1000
    owner = (state == ' ' or state == '+' or state == '*') and token or ''
    waited = state ~= ' ' and state ~= '-'
  end
  return owner ~= '' and owner
end

local function write(lock)
  local state = owner ~= '' and (waited and '+' or ' ') or (waited and '=' or '-')
  if shares ~= '' then
    state = '*'
  end
  local record = string.format('quorlock %016.0f%s%s%s %.0f %.0f 0', fence, state, owner, shares,
    math.floor(expiry / 1000000), expiry % 1000000)
  if redis.pcall('SET', lock, record).err then
    -- A server whose memory is full refuses the first thing that a script stores, but not what follows a
    -- change that takes no room. What is held must not be lost for that, nor stay held after its release.
    if redis.call('GET', lock) then
      redis.call('PERSIST', lock)
    end
    redis.call('SET', lock, record)
  end
end

-- So many are left in the queue: the next record that is written says whether there is a waiter. An error
-- in place of the count may hide one.
local function left_in_queue(others)
  waited = others ~= 0
end

-- A waiter stands in the queue behind the holder of the lock.
local function queued_behind(lock)
  if not waited then
    waited = true
    write(lock)
  end
end

-- When the record ends, in us.
local function ends()
  return expiry
end

-- Has it end then.
local function end_at(lock, end_us)
  expiry = end_us
  write(lock)
end

-- The next record that is written says who holds it.
local function share(_, _, list)
  shares = list
end

-- How long the record lasts, in ms.
local function left_ms()
  return math.ceil((expiry - now()) / 1000)
end

-- Whether the holder that `read` has found has it at this moment.
local function is_live()
  return expiry > now()
end

-- The last fence that was given out.
local function last_fence()
  return fence
end

-- A fence above all that were given out and forgotten, where no client proposes one: this server casts votes
-- again, and fences follow the clients' clocks.
local function newest()
  return tonumber(ARGV[#ARGV - 1])
end

-- A fence that no holder can have been given, since it is more than a day ahead of the client's time of day.
-- Nothing is granted with one, nor above it: it would spread to other servers, up to where one more is not
-- another number for Lua. Nothing, or the refusal.
local function fence_refusal(_, least)
  local high = math.max(fence, least)
  if high > newest() + FENCES_AHEAD_US then
    return {'NUMBER', digits(math.min(high, 2 ^ 63))}
  end
end

-- Raises the fence to what is given at least, and returns it; or the refusal.
local function raise(lock, least)
  local refusal = fence_refusal(lock, least)
  if refusal then
    return refusal
  end
  fence = math.max(fence, least)
  write(lock)
  return fence
end

-- Makes it a token's for so long, whether or not it is held. A request that was seen at `seen_us` by this clock is
-- what its holder counts from: the record must not end before that one's time is over, though the
-- clock has been set back. Returns the fence, or the refusal.
local function take(lock, token, ttl_ms, least, block, seen_us)
  local last = math.max(fence + 1, least) + (math.max(block, 1) - 1)
  local refusal = fence_refusal(lock, last)
  if refusal then
    return refusal
  end
  local ttl_us = tonumber(ttl_ms) * 1000
  local from = math.max(now(), tonumber(seen_us or 0))
  fence = last
  expiry, owner, shares = from + ttl_us, token, ''
  write(lock)
  return fence
end

-- Makes it ours if it is free. Returns the fence, or -1; or an error.
local function take_if_free(lock, token, ttl_ms, least, block)
  local holder, err = read(lock)
  if err then
    return err
  end
  if holder and is_live() then
    return -1
  end
  return take(lock, token, ttl_ms, least, block)
end

-- Keeps what is ours for so long at least, never shorter. Returns the fence, or the refusal.
local function keep(lock, token, ttl_ms)
  local refusal = fence_refusal(lock, 0)
  if refusal then
    return refusal
  end
  local ttl_us = tonumber(ttl_ms) * 1000
  expiry = math.max(expiry, now() + ttl_us)
  write(lock)
  return fence
end

-- Stores the record of a holder again whose lease has not run out, if this server has forgotten it, knows
-- that, and has seen no later holder; with a list of those who hold it, or ''. Returns the fence, or -1.
local function heal(lock, token, ttl_ms, least, list)
  if owner ~= '' and is_live() or fence > least then
    return -1
  end
  if standing() ~= 'quiet' then
    return -1
  end
  local refusal = fence_refusal(lock, least)
  if refusal then
    return refusal
  end
  fence, expiry, owner, shares = least, 0, token, list
  return keep(lock, token, ttl_ms)
end

-- Takes a lock anew for the holder by a majority of other servers, if it is not held here; with a list of
-- those who hold it, or ''. Until its lease ends, those servers keep all others out: a client that had the record here in
-- between tried in vain, though its fence is above the holder's. It never becomes lower. A waiter here is
-- passed it by the release. Returns the fence, or -1; or the refusal.
local function win_back(lock, token, ttl_ms, last, list)
  local refusal = vote_refusal() or fence_refusal(lock, last)
  if refusal then
    return refusal
  end
  if owner ~= '' and is_live() then
    return -1
  end
  fence, expiry, owner, shares = math.max(fence, last), 0, token, list
  return keep(lock, token, ttl_ms)
end

local function drop(lock)
  owner, expiry, shares = '', 0, ''
  write(lock)
end

-- Whether a key is a lock that is held.
local function is_held(key)
  local holder = redis.pcall('GETRANGE', key, 0, 8) == 'quorlock ' and read(key)
  return holder and is_live()
end
