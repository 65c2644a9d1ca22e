-- The common case of release.lua in the `redlock` dialect, where nobody waits, in one piece: each function
-- that is made costs as much as a command. Whatever is not common falls through to the record of the
-- dialect, pass_on.lua and release.lua, which stand behind it and do the same step by step.
--
-- A token with nothing behind it shows that nobody waits (record.lua), unless it was granted in the queue.
--
-- Keys, arguments and replies are those of release.lua.
if not ARGV[3] and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
