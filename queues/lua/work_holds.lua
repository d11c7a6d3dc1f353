-- The fence: 1 if the token is still the key's and no rebuild has happened since its run began, else 0.
--
-- KEYS: none
-- ARGV: 1 key   2 token
-- Keys: torchq:work:key:<key> (see mark.lua), torchq:epoch (see queues/schema.py), both read only.

local known = redis.call('HMGET', 'torchq:work:key:' .. ARGV[1], 'token', 'epoch')
local epoch = redis.call('GET', 'torchq:epoch')
if epoch and known[1] == ARGV[2] and known[2] == epoch then
  return 1
end
return 0
