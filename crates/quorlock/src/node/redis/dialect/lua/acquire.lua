-- Takes a lock if it is free. Stands behind the record of its dialect.
--
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  how long to keep the record, in ms
-- ARGV[3]  the least that the last of our fences may be
-- ARGV[4]  how many fences we want; 0 for none
-- Replies  n >= 0  it is ours, and our last fence is n
--          -1      another has it
--          or a refusal of the dialect
local refusal = vote_refusal()
if refusal then
  return refusal
end
local block = tonumber(ARGV[4])
local least = tonumber(ARGV[3]) - math.max(block, 1) + 1
return take_if_free(KEYS[1], ARGV[1], ARGV[2], least, block)
