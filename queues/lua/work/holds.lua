-- Check the fence: return 1 if the token is still the key's and no rebuild has happened since its run began, else 0.
--
-- Preludes: records
-- KEYS: none
-- ARGV: 1 key   2 token
-- Keys: torchq:work:records (see lib/mark.lua), torchq:epoch (see queues/redis_keys.py), both read only.
--       torchq:none never exists: a server that takes no writes refuses its deletion and so the whole script. A master that
--       is cut off from its replicas, or a former one, would still answer from what it knew.

redis.call('DEL', 'torchq:none')
local record = record_of(ARGV[1])
local epoch = redis.call('GET', 'torchq:epoch')
if epoch and record and record.token == ARGV[2] and record.epoch == epoch then
  return 1
end
return 0
