-- Drop the keys of deleted jobs. A delayed key is forgotten at once, unless its last run failed: the next run finds out whether
-- that run left pods behind. A key that a worker runs is run once more, and that run finds no job. Safe to repeat.
--
-- Preludes: records; lib/mark.lua lists the keys' schema.
-- KEYS: none
-- ARGV: the keys
-- Returns: number of keys forgotten.

local dropped = 0
for i = 1, #ARGV do
  local key = ARGV[i]
  local record = record_of(key) or {}
  if record.state == 'delayed' and not record.failures then
    redis.call('ZREM', 'torchq:work:delayed', key)
    redis.call('HDEL', 'torchq:work:records', key)
    dropped = dropped + 1
  elseif record.state == 'leased' then
    record.dirty = '1'
    keep_record(key, record)
  end
end
return dropped
