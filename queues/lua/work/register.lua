-- Register a live worker. Safe to repeat.
--
-- Preludes: clock, epoch, records, mark (which lists the keys' schema).
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       2 seconds until the registration expires
--       3 worker   4 JSON of its registration; empty: take the worker off the list
-- Returns: the layout, the epoch and the owner of the store, an empty text for what it lacks; and the time.
--
-- Further keys:
--   torchq:epoch, torchq:layout, torchq:owner   read only; see queues/redis_keys.py

local now = clock(ARGV[1])
if ARGV[4] == '' then
  redis.call('HDEL', 'torchq:work:members', ARGV[3])
else
  -- cjson would cut the time to 14 digits
  local ends = ',"until":' .. seconds(now + tonumber(ARGV[2])) .. '}'
  redis.call('HSET', 'torchq:work:members', ARGV[3], (string.gsub(ARGV[4], '}$', ends)))
end
redis.call('ZREMRANGEBYSCORE', 'torchq:work:workers', '-inf', seconds(now))
local answer = {}
for at, value in ipairs(redis.call('MGET', 'torchq:layout', 'torchq:epoch', 'torchq:owner')) do
  answer[at] = value or ''
end
answer[#answer + 1] = seconds(now)
return answer
