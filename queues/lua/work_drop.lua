-- Forget keys whose jobs are gone. A delayed key is forgotten at once, unless its last run failed: the next one settles
-- whether that left pods behind. A key that is worked at runs once more, and finds nothing. Safe to repeat.
--
-- Preludes: none; mark.lua lists the keys' schema.
-- KEYS: none
-- ARGV: the keys
-- Returns: number of keys forgotten.

local dropped = 0
for i = 1, #ARGV do
  local key = ARGV[i]
  local record = 'torchq:work:key:' .. key
  local known = redis.call('HMGET', record, 'state', 'failures')
  if known[1] == 'delayed' and not known[2] then
    redis.call('ZREM', 'torchq:work:delayed', key)
    redis.call('DEL', record)
    dropped = dropped + 1
  elseif known[1] == 'leased' then
    redis.call('HSET', record, 'dirty', '1')
  end
end
return dropped
