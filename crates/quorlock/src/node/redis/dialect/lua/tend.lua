-- Clears locks away that nobody has used for a day, a few keys at a time, and reports how the server is set up
-- at present. Stands alone, behind its constants.
--
--   PREFIX:quorlock:sweep  a string: "CURSOR DUE_US EVICTED RUN_ID". Where the walk through the database goes on;
--                          when, by this server's clock, so that all clients together take one step a second; and
--                          of how many keys it is known that this start of the server has thrown them away
--
-- A record has no expiry of the server's: it would be the first to go for want of memory, and a clock that
-- is wrong for a moment would take it away. It goes by a request whose clock is right, if its end and its fence
-- are more than a day old: its holder has long stopped believing in it, and any new fence is higher.
--
-- Constants, in the `strict` dialect; SWEEP and MARKER are nil in the other one, where the server's expiry
-- clears everything away:
-- BEHIND_US, AHEAD_US, MARKER, RECORD  see strict/record.lua
-- SWEEP   the key
-- ALL     a pattern for the keys of all locks
-- OLD_US  how old what goes has to be
--
-- ARGV[1]  the client's time of day, in us
-- ARGV[2]  how many keys the server had thrown away when the client last asked, or '' to get no setup and marker
-- Replies  {more, setup, marker}: 1 if there is so much to clear away that the next step should come soon, some
--          lines of INFO, and how the marker begins: a client that asks for nothing else sees by it that the
--          server was emptied
local KEYS_PER_STEP, STEP_US, SOON_US = 250, 1000000, 100000
-- No record is so long, with all who take part in it.
local LONGEST = 16384

local time = redis.call('TIME')
local now, sent = time[1] * 1000000 + time[2], tonumber(ARGV[1])

local cursor, due, known = '0', 0, '0 -'
local kept = SWEEP and redis.pcall('GET', SWEEP)
if type(kept) == 'string' then
  local at, from, count = kept:match('^(%d+) (%d+) (%d+ %S+)$')
  cursor, due, known = at or '0', tonumber(from or 0), count or '0 -'
end

-- Whether it could be written down.
local function noted()
  -- It takes no room, so that a server whose memory is full stores what follows.
  redis.pcall('PEXPIRE', SWEEP, '86400000')
  local text = string.format('%s %.0f %s', cursor, due, known)
  return not redis.pcall('SET', SWEEP, text, 'PX', '86400000').err
end

local function is_old(record)
  local fence, _, _, seconds, micros, ttl_ms = record:match(RECORD)
  local old = now - OLD_US
  return fence and tonumber(fence) < old
    and seconds * 1000000 + micros + ttl_ms * 1000 < old
end

-- Returns whether there is much to clear away.
local function step()
  due = now + STEP_US
  local found = noted() and redis.pcall('SCAN', cursor, 'MATCH', ALL, 'COUNT', KEYS_PER_STEP, 'TYPE', 'string')
  if not found or found.err then
    return false
  end
  local cleared = 0
  for _, key in ipairs(found[2]) do
    -- A user may not see all keys.
    local record = redis.pcall('GETRANGE', key, 0, LONGEST)
    if type(record) == 'string' and #record <= LONGEST and is_old(record) then
      redis.call('DEL', key)
      cleared = cleared + 1
    end
  end
  cursor = found[1]
  local much = cleared * 4 > #found[2]
  if much then
    due = now + SOON_US
  end
  noted()
  return much
end

local more = 0
if SWEEP and type(kept) ~= 'table' and now >= sent - BEHIND_US and now <= sent + AHEAD_US
  -- A time far ahead was written down by a clock that was wrong.
  and (now >= due or due > now + 10 * STEP_US) and step() then
  more = 1
end
if ARGV[2] == '' then
  return {more, '', ''}
end

local setup = ''
for _, section in ipairs({'server', 'memory', 'stats', 'replication'}) do
  local info = redis.pcall('INFO', section)
  for _, field in ipairs({'run_id', 'maxmemory', 'maxmemory_policy', 'evicted_keys', 'role'}) do
    local value = type(info) == 'string' and info:match('\n' .. field .. ':([^\r\n]*)')
    if value then
      setup = setup .. field .. ':' .. value .. '\n'
    end
  end
end
-- Keys were thrown away, and it is not known which: votes may be among them. A server without a marker counts as
-- emptied, and casts no vote for a while; so does one whose set forms. Once is enough, however many clients see
-- it; what an earlier start of the server has thrown away, and a file has brought back, says nothing of this one.
-- One that is closed or carries no set keeps its marker.
local evicted = setup:match('evicted_keys:(%d+)') or '0'
local count = evicted .. ' ' .. (setup:match('run_id:(%S+)') or '-')
if MARKER and tonumber(evicted) > tonumber(ARGV[2]) and count ~= known then
  local marker = redis.pcall('GET', MARKER)
  if type(marker) == 'string' and (marker:find('^formed ') or marker:find('^forming ')) then
    redis.pcall('DEL', MARKER)
  end
  known = count
  noted()
end
local marker = MARKER and redis.pcall('GETRANGE', MARKER, 0, 127)
return {more, setup, type(marker) == 'string' and marker or ''}
