-- Let jobs wait, or change how they wait.
--
-- ARGV: epoch (0: whatever it is), then per entry: job key, its JSON text
-- Keys and preludes: store.lua
-- Returns: number of entries that changed. Errors STORELOST, STALEEPOCH.
-- A job that holds a reservation is left alone but for kind "grow", one that holds none is left alone by that kind.

local function put(key, text)
  local entry = cjson.decode(text)
  local holds = redis.call('HEXISTS', 'torchq:reservations', key) == 1
  if (entry.kind == 'grow') ~= holds or redis.call('HGET', 'torchq:entries', key) == text then
    return 0
  end
  forget_entry(key)
  local aging = aging_of(redis.call('HGET', 'torchq:queues', entry.queue))
  redis.call('SADD', 'torchq:known', entry.queue)
  redis.call('HSET', 'torchq:entries', key, text)
  redis.call('HSET', 'torchq:versions', key, redis.call('INCR', 'torchq:version'))
  redis.call('ZADD', 'torchq:order:' .. entry.queue, score(entry, aging), place(key))
  return 1
end

local refused = refusal_while_open_or_rebuilding(ARGV[1])
if refused then
  return refused
end
local changed = 0
for at = 2, #ARGV, 2 do
  changed = changed + put(ARGV[at], ARGV[at + 1])
end
return changed
