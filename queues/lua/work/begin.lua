-- Start on leased keys: a key whose token is still the one given goes over to the running lease.
--
-- Preludes: clock, records, mark (which lists the keys' schema).
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       2 seconds the running lease lasts
--       3 a random word, new with every call: a repeated call finds its own runs, another one finds them taken
--       then for each lease: key, token
-- Returns: flat list of key, token, tenant, seen, failures, reservation (JSON, empty if there is none), one run after the
-- other; the keys that are missing were lost. Error STORELOST if torchq:epoch is missing.
--
-- Further keys:
--   torchq:epoch, torchq:reservations   read only; queues/redis_keys.py says what they hold

-- Whoever is next sees at least what the one before has seen.
local function newest(key, seen)
  local made = redis.call('HGET', 'torchq:work:made', key)
  return made and made ~= DOUBT and tonumber(made) > tonumber(seen) and made or seen
end

local epoch = redis.call('GET', 'torchq:epoch')
if not epoch then
  return redis.error_reply('STORELOST no epoch: the queues must be rebuilt first')
end
local ends = seconds(clock(ARGV[1]) + tonumber(ARGV[2]))
local tasks = {}
for i = 4, #ARGV, 2 do
  local key, token = ARGV[i], ARGV[i + 1]
  local record = record_of(key)
  if record and record.token == token and (record.run or ARGV[3]) == ARGV[3] then
    record.run, record.epoch = ARGV[3], epoch
    keep_record(key, record)
    redis.call('ZADD', 'torchq:work:leases', ends, key)
    local seen, failures = newest(key, record.seen or '0'), tostring(record.failures or 0)
    local reservation = redis.call('HGET', 'torchq:reservations', key) or ''
    for _, value in ipairs({key, token, record.tenant or '', seen, failures, reservation}) do
      tasks[#tasks + 1] = value
    end
  end
end
return tasks
