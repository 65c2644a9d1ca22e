-- The common case of acquire.lua in the `strict` dialect, in one piece: each function that is made costs
-- as much as a command, and so does each long number that is written as text, and a new text of some
-- length half as much. Whatever is not common falls through to the record of the dialect and
-- acquire.lua, which stand behind it and do the same step by step.
--
-- Keys, arguments and replies are those of acquire.lua, and of record.lua.
local time = redis.call('TIME')
local now, sent = time[1] * 1000000 + time[2], tonumber(ARGV[5])
local id, marker = ARGV[6], redis.call('GET', MARKER)
if now >= sent - BEHIND_US and now <= sent + AHEAD_US and marker
  and marker:find(id, 1, true) == 1
  and (tonumber(marker:sub(#id + 1, #id + 16)) or now + 1) <= now then
  local record, fence, last = redis.pcall('GET', KEYS[1]), 0, tonumber(ARGV[3])
  if record then
    record = type(record) == 'string' and record or ''
    -- One that is free, with no waiter in its queue: '-' stands behind its fence.
    fence = record:byte(26) == 45 and record:find('quorlock ', 1, true) == 1
      and tonumber(record:sub(10, 25))
  end
  if fence and fence < last and fence + ARGV[4] <= last and #ARGV[3] == 16
    and last - sent <= FENCES_AHEAD_US then
    redis.call('SET', KEYS[1], 'quorlock ' .. ARGV[3] .. ' ' .. ARGV[1] .. ' ' .. time[1] .. ' '
      .. time[2] .. ' ' .. ARGV[2])
    return last
  end
  if not fence then
    local _, state, owner, seconds, micros, ttl_ms = record:match(RECORD)
    if owner and owner ~= '' and #owner <= 1024 and (state == ' ' or state == '+')
      and seconds * 1000000 + micros + ttl_ms * 1000 > now then
      return -1
    end
  end
end
