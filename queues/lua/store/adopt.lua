-- Make an installation the owner of the store. The store is lost then, so that its new owner rebuilds it from its cluster.
--
-- KEYS: none
-- ARGV: the installation, as torchq:owner has it
-- Keys: torchq:owner, torchq:epoch, torchq:rebuilding (see lib/store.lua)
-- Returns: 1; 0 if the installation owns the store already, and nothing has changed.

if redis.call('GET', 'torchq:owner') == ARGV[1] then
  return 0
end
redis.call('SET', 'torchq:owner', ARGV[1])
redis.call('DEL', 'torchq:epoch', 'torchq:rebuilding', 'torchq:probe')
return 1
