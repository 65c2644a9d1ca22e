-- Raises the last fence of a lock, if the lock is ours. Stands behind the record of its dialect.
--
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  the fence
-- Replies  n >= 0  it is ours, and its last fence is n
--          -1      there is none, or another's: nothing was changed
--          or the refusal of a fence that no holder can have been given
--
-- Without the look at the owner it would prove nothing: the fence of the present holder was given out
-- before, and may be lower.
if read(KEYS[1]) ~= ARGV[1] or not is_live() then
  return -1
end
return raise(KEYS[1], tonumber(ARGV[2]))
