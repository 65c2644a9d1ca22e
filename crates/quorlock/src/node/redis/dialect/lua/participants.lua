-- Who holds a lock with its token. Stands between the record of its dialect and a verb.
--
-- That is the maker of the lock, and processes that take part in it by the id of its owner, each until an
-- end of its own by this server's clock. They are listed in the record itself, " WHO END_US" for each, from
-- the first on that takes part. So the list is there exactly as long as the record, and is of its token.
--
-- The record lasts until the latest end of all who are listed. That of another who is not there any longer
-- is over only for a request by which a vote could be cast: for the same reason as that of a record.
--
-- who       'maker', or the id of one who takes part
local MOST = 256

-- Calls `each` with each one that is listed and its end.
local function for_all(each)
  for who, ends in shares:gmatch(' (%S+) (%d+)') do
    each(who, tonumber(ends))
  end
end

-- Keeps what is ours for so long at least, never shorter, for one of those who hold it. Returns the fence,
-- or -1 if there is no room for another one.
local function keep_for(who, lock, token, ttl_ms)
  if shares == '' and who == 'maker' then
    return keep(lock, token, ttl_ms)
  end
  if shares == '' then
    shares = ' maker ' .. digits(ends(lock))
  end
  local mine, others, count = 0, '', 0
  for_all(function(other, its_end)
    if other == who then
      mine = its_end
    elseif its_end > now() then
      others, count = others .. ' ' .. other .. ' ' .. digits(its_end), count + 1
    end
  end)
  if count >= MOST and mine == 0 and who ~= 'maker' then
    return -1
  end
  mine = math.max(mine, now() + tonumber(ttl_ms) * 1000)
  share(lock, token, others .. ' ' .. who .. ' ' .. digits(mine))
  return keep(lock, token, ttl_ms)
end

-- Whether a process other than its maker holds it. For a request by which a vote could be cast.
local function is_shared()
  local shared = false
  for_all(function(who, its_end)
    shared = shared or who ~= 'maker' and its_end > now()
  end)
  return shared
end

-- Whether `who` is listed.
local function is_listed(who)
  return shares:find(' ' .. who .. ' ', 1, true) ~= nil
end

-- Takes one of those who hold it off the list. Returns whether it is left to others.
local function leave_to_others(who, lock, token)
  local others, latest = '', 0
  for_all(function(other, its_end)
    if other ~= who then
      others, latest = others .. ' ' .. other .. ' ' .. digits(its_end), math.max(latest, its_end)
    end
  end)
  if others == '' or latest <= now() and may_pass_on() then
    return false
  end
  share(lock, token, others)
  end_at(lock, latest)
  return true
end
