-- Raises the last number of a lock, if the lock is ours. Stands behind the record of its dialect.
--
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  the number
-- Replies  n >= 0  it is ours, and its last number is n
--          -1      there is none, or somebody else's: nothing was changed
--          or the refusal of a number that nobody can have been given
--
-- Without the look at the owner it would prove nothing: the number of whoever has it now was given out
-- before, and may be lower.
if read(KEYS[1]) ~= ARGV[1] or not is_live() then
  return -1
end
return raise(KEYS[1], tonumber(ARGV[2]))
