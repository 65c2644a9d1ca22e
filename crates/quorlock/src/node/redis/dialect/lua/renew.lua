-- Keeps one lock longer, for extend.lua and for scripts that extend many at once. Stands behind participants.lua.
--
-- lock, token
-- ttl_ms    how long to keep it from now on
-- restore   'no', or what to do if the record is not there:
--           'heal'  our lease stands on this server and has not run out: store the record again, if this server
--                   has forgotten it and casts no vote
--           'win'   our lease stands on a majority of others: take it anew if this server votes, and nobody has it
-- last      the last of our fences
-- who       'maker', or who takes part in what another process has made
-- Returns   n >= 0  it is ours, lasts at least so long, and its last fence is n
--           -1      there is none, or another's, or no room for another: nothing was changed
--           or a refusal of the dialect, or an error
--
-- The clocks have to be compared before, and whether this server is of the client's set.
local function renew(lock, token, ttl_ms, restore, last, who)
  local holder, err = read(lock)
  if err then
    return err
  end
  -- A holder that may still count on an extension has a record that has not ended. One that came back from an
  -- old file may be another's by right: on a server that casts no vote it counts only for a holder whose lease
  -- there has not run out.
  if holder == token and is_live() and (restore == 'heal' or quarantine_ms() == 0) then
    return keep_for(who, lock, token, ttl_ms)
  end
  if restore == 'no' then
    return -1
  end
  -- Who else holds it is not known here any more, and is listed again with its next extension.
  local alone = ''
  if who ~= 'maker' then
    alone = ' ' .. who .. ' ' .. digits(now() + tonumber(ttl_ms) * 1000)
  end
  local store = restore == 'win' and win_back or heal
  local restored = store(lock, token, ttl_ms, tonumber(last), alone)
  -- The holder of the record needs no place in its queue: a forced release would pass the lock on to it again.
  if type(restored) == 'number' and restored >= 0
    and redis.pcall('ZREM', lock .. ':quorlock:queue', token) == 1 then
    redis.pcall('HDEL', lock .. ':quorlock:waiters', token)
  end
  return restored
end
