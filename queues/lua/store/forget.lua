-- Delete keys, so that a rebuild begins with an empty store. The store is lost from the first call on: it accepts only a
-- rebuild, and workers stop because the epoch is missing.
--
-- KEYS: none
-- ARGV: epoch of the caller's term, then names of keys below torchq: or rq:
-- Keys: torchq:epoch, torchq:rebuilding (see lib/store.lua), which may have any type; and the keys in ARGV.
-- Returns: number of deleted keys. Error STALEEPOCH, with nothing changed, if a rebuild under a higher epoch has begun or is
-- done.

local own_epoch = tonumber(ARGV[1])

-- Return the epoch in a key. An unreadable value counts as 0.
local function epoch(key)
  local text = redis.pcall('GET', key)
  return type(text) == 'string' and tonumber(text) or 0
end

local current_epoch = math.max(epoch('torchq:epoch'), epoch('torchq:rebuilding'))
if current_epoch > own_epoch then
  return redis.error_reply('STALEEPOCH epoch ' .. ARGV[1] .. ' is over: the queues are at ' .. string.format('%.0f', current_epoch))
end
redis.call('DEL', 'torchq:epoch', 'torchq:rebuilding')
local deleted = 0
for at = 2, #ARGV do
  if string.sub(ARGV[at], 1, 7) == 'torchq:' or string.sub(ARGV[at], 1, 3) == 'rq:' then
    deleted = deleted + redis.call('UNLINK', ARGV[at])
  end
end
return deleted
