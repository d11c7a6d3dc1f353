-- Write a key, so that a server that takes no writes says so. A store of another owner is left alone.
--
-- KEYS: none
-- ARGV: the caller's installation, as torchq:owner has it; empty if it is not known
-- Keys: torchq:owner (see lib/store.lua), read only; torchq:probe, which expires soon: the installation that wrote it.
-- Returns: the owner, or an empty text. The error is the server's.

local owner = redis.call('GET', 'torchq:owner') or ''
if owner == '' or ARGV[1] == '' or owner == ARGV[1] then
  redis.call('SET', 'torchq:probe', ARGV[1], 'EX', 60)
end
return owner
