-- The record of a lock in the `redlock` dialect. Stands before the verbs.
--
--   LOCK                 a string: the holder's token, with the server's expiry, as the Redis
--                        documentation describes it, so that every Redlock library shares the lock.
--                        Behind a token of this library stands a '+' once a waiter has taken a place in
--                        the queue behind it: a release that only compares and deletes finds another
--                        value then, and does nothing. Who was granted it in the queue releases otherwise.
--                        A '*' stands there once another process takes part in the lock, and behind it who
--                        holds it (participants.lua)
--   LOCK:quorlock:fence  a string: the last fence that was given out. It goes a day after its last
--                        use: fences follow the clock, so that any new one is higher by then
-- The second key is not among KEYS: a user without rights to it could release nothing then.
local FENCE_KEPT_MS = '86400000'

-- May the node look at this request, and may it vote? Always.
local function clock_refusal() end
local function set_refusal() end
local function vote_refusal() end
local function may_pass_on() return true end

-- This server's clock, by which records end, in us.
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

local function newest() return 0 end
local function quarantine_ms() return 0 end

-- A holder that was granted the lock in the queue looks for others there: its record does not show them.
local function left_in_queue() end

-- What is known of the lock that was read last: a token of this library that has no '+' behind it yet; who holds
-- it with its token, if more than one may; and what the record is to be once it is kept, or ends at another time.
local unmarked, shares, shared = nil, '', nil

-- The holder's token, or false; and an error if the key holds something else, and what, if that is known.
local function read(lock)
  unmarked, shares, shared = nil, '', nil
  local owner = redis.pcall('GET', lock)
  if type(owner) == 'table' then
    return false, owner
  end
  -- No token is so long, and a text of any size would fill the connection.
  if owner and #owner > 1024 and not owner:find('^ql:[%x:]+%* ') then
    local what = 'string of ' .. #owner .. ' bytes'
    return false, redis.error_reply('WRONGTYPE it holds a ' .. what), what
  end
  -- Even a free one stays for a day, and would be waited for.
  if owner and owner:sub(1, 9) == 'quorlock ' then
    return false, redis.error_reply('WRONGTYPE it holds a lock of the strict dialect')
  end
  if owner and owner:sub(1, 3) == 'ql:' then
    local token, list = owner:match('^([^*]+)%*( .+)$')
    if token then
      shares = list
      return token
    end
    if owner:sub(-1) == '+' then
      return owner:sub(1, -2)
    end
    unmarked = owner
  end
  return owner
end

-- A waiter stands in the queue behind the holder of the lock. What another library has stored is left as it
-- is: it would not find it again.
local function queued_behind(lock)
  if unmarked then
    redis.call('SET', lock, unmarked .. '+', 'KEEPTTL')
  end
end

-- When the record ends, in us. One whose end was removed gets another, later than that of any
-- lease: its holder must not count as gone.
local function ends(lock)
  local left = redis.call('PTTL', lock)
  if left < 0 then
    left = 86400000
    redis.call('PEXPIRE', lock, left)
  end
  return now() + left * 1000
end

-- The next record that is written says who holds it.
local function share(_, token, list)
  shared = token .. '*' .. list
end

local function write_shared(lock)
  if shared then
    redis.call('SET', lock, shared, 'KEEPTTL')
  end
end

-- Has it end then.
local function end_at(lock, end_us)
  write_shared(lock)
  redis.call('PEXPIREAT', lock, digits(math.ceil(end_us / 1000)))
end

-- How long the record lasts, in ms; -1 for ever.
local function left_ms(lock)
  return redis.call('PTTL', lock)
end

-- Whether the holder that `read` has found has it at this moment.
local function is_live()
  return true
end

-- From here on one more is not another number for Lua: nothing is granted with such a fence.
local FENCES_END = 2 ^ 53

-- The last fence that was given out.
local function last_fence(lock)
  return tonumber(redis.call('GET', lock .. ':quorlock:fence') or '0') or FENCES_END
end

-- Whether a holder can be given this fence, whatever was given out. Nothing, or the refusal.
local function fence_refusal(_, fence)
  if fence >= FENCES_END then
    return {'NUMBER', string.format('%.0f', math.min(fence, 2 ^ 63))}
  end
end

local function set_fence(lock, fence)
  redis.call('SET', lock .. ':quorlock:fence', string.format('%.0f', fence), 'PX', FENCE_KEPT_MS)
  return fence
end

-- Raises the fence to what is given at least, and returns it; or the refusal.
local function raise(lock, least)
  local fence = math.max(last_fence(lock), least)
  return fence_refusal(lock, fence) or set_fence(lock, fence)
end

-- Stores the record of a new holder that is to have `block` fences from `least` on, or none. Returns the
-- last of them, or -1 if `how` keeps it from being stored; or the refusal of the fence.
local function store(lock, token, ttl_ms, least, block, how)
  -- First, so that nothing has changed if this user may not.
  local fence = block > 0 and math.max(last_fence(lock) + 1, least) + (block - 1) or 0
  local refusal = fence_refusal(lock, fence)
  if refusal then
    return how and redis.call('EXISTS', lock) == 1 and -1 or refusal
  end
  local stored = how and redis.call('SET', lock, token, 'PX', ttl_ms, how)
    or not how and redis.call('SET', lock, token, 'PX', ttl_ms)
  if not stored then
    return -1
  end
  return fence > 0 and set_fence(lock, fence) or 0
end

-- Makes it a token's for so long, whether or not it is held. Returns the fence, or the refusal.
local function take(lock, token, ttl_ms, least, block)
  return store(lock, token, ttl_ms, least, block)
end

-- Makes it ours if it is free. Returns the fence, or -1; or the refusal.
local function take_if_free(lock, token, ttl_ms, least, block)
  return store(lock, token, ttl_ms, least, block, 'NX')
end

-- Keeps what is ours for so long at least. Returns the fence, or the refusal, which changes nothing.
local function keep(lock, token, ttl_ms)
  local fence = redis.pcall('GET', lock .. ':quorlock:fence')
  fence = type(fence) == 'string' and (tonumber(fence) or FENCES_END) or 0
  local refusal = fence_refusal(lock, fence)
  if refusal then
    return refusal
  end
  write_shared(lock)
  if redis.call('PTTL', lock) < tonumber(ttl_ms) then
    redis.call('PEXPIRE', lock, ttl_ms)
  end
  return fence
end

-- Nothing is healed: this dialect does not know what a server has forgotten.
local function heal()
  return -1
end

-- Takes a lock anew for the holder by a majority of other servers, if it is not held here; with a list of
-- those who hold it, or ''. The fence never becomes lower. Returns the fence, or -1; or the refusal.
local function win_back(lock, token, ttl_ms, last, list)
  -- First, so that nothing has changed if this user may not.
  local fence = last > 0 and math.max(last_fence(lock), last) or 0
  local refusal = fence_refusal(lock, fence)
  if refusal then
    return refusal
  end
  -- Its release looks for those who wait here.
  local waiting = redis.pcall('ZCARD', lock .. ':quorlock:queue')
  local behind = list ~= '' and '*' .. list or waiting ~= 0 and '+' or ''
  if not redis.call('SET', lock, token .. behind, 'PX', ttl_ms, 'NX') then
    return -1
  end
  return fence > 0 and set_fence(lock, fence) or 0
end

local function drop(lock)
  redis.call('DEL', lock)
end

-- Whether a key is a lock that somebody of this library holds. What other libraries hold looks like any
-- other string.
local function is_held(key)
  return redis.pcall('GETRANGE', key, 0, 2) == 'ql:'
end
