-- The common case of acquire.lua in the `strict` dialect, in one piece: each function that is made costs
-- as much as a command. Whatever is not common falls through to the record of the dialect and
-- acquire.lua, which stand behind it and do the same step by step.
--
-- Keys, arguments and replies are those of acquire.lua, and of record.lua.
local time = redis.call('TIME')
local now, sent = time[1] * 1000000 + time[2], tonumber(ARGV[5])
local id, marker = ARGV[6], redis.call('GET', MARKER)
if now >= sent - BEHIND_US and now <= sent + AHEAD_US
  and marker and marker:sub(1, #id) == id and (tonumber(marker:sub(#id + 1)) or now + 1) <= now then
  local record = redis.pcall('GET', KEYS[1])
  local number, expiry, owner = 0, 0, ''
  if record then
    number, expiry, owner = (type(record) == 'string' and record or ''):match(RECORD)
  end
  if number and #owner <= 1024 then
    if owner ~= '' and tonumber(expiry) > now then
      return -1
    end
    number = math.max(number + 1, tonumber(ARGV[3])) + math.max(ARGV[4], 1) - 1
    expiry = now + ARGV[2] * 1000
    redis.call('SET', KEYS[1], string.format('quorlock %.0f %.0f %s', number, expiry, ARGV[1]),
      'PX', KEPT_MS)
    return number
  end
end
