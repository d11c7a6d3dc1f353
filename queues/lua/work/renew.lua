-- Prolong running leases. A key with another token by now is left as it is. Safe to repeat.
--
-- Preludes: clock, records, mark (which lists the keys' schema).
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       2 seconds the running lease lasts
--       then for each lease: key, token
-- Returns: number of leases prolonged.

local ends = seconds(clock(ARGV[1]) + tonumber(ARGV[2]))
local renewed = 0
for i = 3, #ARGV, 2 do
  local key = ARGV[i]
  local record = record_of(key)
  if record and record.token == ARGV[i + 1] then
    redis.call('ZADD', 'torchq:work:leases', ends, key)
    renewed = renewed + 1
  end
end
return renewed
