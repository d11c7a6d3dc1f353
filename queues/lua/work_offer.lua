-- Mark keys as work, at once or after a delay. Safe to repeat.
--
-- Preludes: clock, mark (which lists the keys' schema).
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       then for each offer: key, tenant, seen, delay in seconds
-- Returns: number of offers. Error STORELOST if torchq:epoch is missing.

local function mark_later(key, tenant, seen, due)
  local record = 'torchq:work:key:' .. key
  local known = redis.call('HMGET', record, 'state', 'seen')
  keep_newest(record, known[2], seen)
  if not known[1] then
    redis.call('HSET', record, 'state', 'delayed', 'tenant', tenant)
    redis.call('ZADD', 'torchq:work:delayed', seconds(due), key)
  elseif known[1] == 'delayed' then
    redis.call('ZADD', 'torchq:work:delayed', 'LT', seconds(due), key)
  elseif known[1] == 'leased' then
    redis.call('HSET', record, 'dirty', '1', 'tenant', tenant)
  end
end

if redis.call('EXISTS', 'torchq:epoch') == 0 then
  return redis.error_reply('STORELOST no epoch: the queues must be rebuilt first')
end
local now = clock(ARGV[1])
for i = 2, #ARGV, 4 do
  local key, tenant, seen, delay = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  if delay > 0 then
    mark_later(key, tenant, seen, now + delay)
  else
    mark(key, tenant, seen, seconds(now))
  end
end
return (#ARGV - 1) / 4
