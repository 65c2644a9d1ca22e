-- Keeps locks longer that are ours, never shorter. Stands behind renew.lua.
--
-- KEYS[n]  the nth lock. For each of them:
-- ARGV[5n - 4]  our token
-- ARGV[5n - 3]  how long to keep it from now on, in ms
-- ARGV[5n - 2]  what to do if the record is not there: 'no', 'heal' or 'win'
-- ARGV[5n - 1]  the last of our fences
-- ARGV[5n]      who we are: 'maker', or who takes part in what another process has made
-- Replies  for each of them as renew.lua returns, in a list if there is more than one;
--          or a refusal of the dialect, for all of them
local refusal = clock_refusal() or set_refusal()
if refusal then
  return refusal
end
if #KEYS == 1 then
  return renew(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5])
end
local answers = {}
for n, lock in ipairs(KEYS) do
  local at = 5 * n
  -- What goes wrong with one of them is no concern of the others.
  local ran, answer = pcall(renew, lock, ARGV[at - 4], ARGV[at - 3], ARGV[at - 2], ARGV[at - 1], ARGV[at])
  if not ran and type(answer) ~= 'table' then
    answer = redis.error_reply(tostring(answer))
  end
  answers[n] = answer
end
return answers
