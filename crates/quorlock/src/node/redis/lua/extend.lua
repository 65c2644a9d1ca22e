-- Keeps a lock longer if it is ours, never shorter. Stands behind participants.lua.
--
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  how long to keep it from now on, in ms
-- ARGV[3]  the last of our numbers, if we may store the record again on a server that has forgotten it:
--          our lease on this one has not run out. '' if we may not
-- ARGV[4]  who we are: 'maker', or who takes part in what another process has made
-- Replies  n >= 0  it is ours, lasts at least so long, and its last number is n
--          -1      there is none, or somebody else's, or no room for another: nothing was changed
--          or a refusal of the dialect
local refusal = clock_refusal() or set_refusal()
if refusal then
  return refusal
end
local owner, err = read(KEYS[1])
if err then
  return err
end
-- Whoever may still count on an extension has a record that has not ended. One that came back from an
-- old file may be another's by right: on a server that casts no vote it counts only for whose lease there
-- has not run out.
if owner == ARGV[1] and is_live() and (ARGV[3] ~= '' or quarantine_ms() == 0) then
  return keep_for(ARGV[4], KEYS[1], ARGV[1], ARGV[2])
end
if ARGV[3] == '' then
  return -1
end
-- Who else holds it is not known here any more, and is listed again with its next extension.
local alone = ''
if ARGV[4] ~= 'maker' then
  alone = ' ' .. ARGV[4] .. ' ' .. digits(now() + tonumber(ARGV[2]) * 1000)
end
return heal(KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), alone)
