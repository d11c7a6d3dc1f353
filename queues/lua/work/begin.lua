-- Begin runs of leased keys: a key whose token is still valid gets the running lease.
--
-- Preludes: clock, epoch, records, mark (which lists the keys' schema).
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       2 layout of the caller   3 seconds the running lease lasts
--       4 a random word for this call: by it a repeated call recognizes its own runs; for another call the keys are lost
--       then for each lease: key, token
-- Returns: flat list of key, token, tenant, seen, failures, reservation (JSON, empty if there is none), seconds since the key
-- became ready, seconds since it was leased, brief (empty if there is none); one run after the other. Missing keys were lost.
-- Error STORELOST (lib/epoch.lua).
--
-- Further keys:
--   torchq:reservations   read only; see queues/redis_keys.py

-- Return the version of pods that the next run must know: at least the version that the last run knew.
local function newest(key, seen)
  local made = redis.call('HGET', 'torchq:work:made', key)
  return made and made ~= DOUBT and tonumber(made) > tonumber(seen) and made or seen
end

local epoch, lost = live_epoch(ARGV[2])
if lost then
  return lost
end
local now = clock(ARGV[1])
local ends = seconds(now + tonumber(ARGV[3]))

-- Return the seconds since a time in a record.
local function age(time)
  return seconds(now - (tonumber(time or '') or now))
end

-- Return the brief of a key, and forget it: only the run that begins now may trust it.
local function take_brief(key)
  local name = 'torchq:work:brief:' .. key
  local brief = redis.call('GET', name)
  if brief then
    redis.call('DEL', name)
  end
  return brief or ''
end

local tasks = {}
for i = 5, #ARGV, 2 do
  local key, token = ARGV[i], ARGV[i + 1]
  local record = record_of(key)
  if record and record.token == token and (record.run or ARGV[4]) == ARGV[4] then
    record.run, record.epoch = ARGV[4], epoch
    keep_record(key, record)
    redis.call('ZADD', 'torchq:work:leases', ends, key)
    local seen, failures = newest(key, record.seen or '0'), tostring(record.failures or 0)
    local reservation = redis.call('HGET', 'torchq:reservations', key) or ''
    local waits, brief = { age(record.since), age(record.leased) }, take_brief(key)
    for _, value in ipairs({key, token, record.tenant or '', seen, failures, reservation, waits[1], waits[2], brief}) do
      tasks[#tasks + 1] = value
    end
  end
end
return tasks
