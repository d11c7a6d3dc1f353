-- Give keys back. A key with another token by now is left as it is. Safe to repeat: the first call ends the token.
--
-- Preludes: clock, records, mark (which lists the keys' schema).
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       2 seconds of the first backoff   3 seconds of the longest
--       4 seconds for which the settled version of a run is remembered
--       then for each key: key, token, requeue_after in seconds (empty: none), 1 if the run failed else 0, newest
--       resourceVersion known of its pods (0: none), the job's resourceVersion at which nothing is left to do (0: there may
--       be something)
-- Returns: number of keys given back.

local function backoff(record)
  record.failures = (record.failures or 0) + 1
  return math.min(tonumber(ARGV[3]), tonumber(ARGV[2]) * 2 ^ (record.failures - 1))
end

-- Keep the version of pods that the coordinator must know before it frees the key's reservation.
local function note(key, failed, made)
  if failed then
    doubt(key)
  elseif made == '0' then
    if redis.call('HGET', 'torchq:work:made', key) == DOUBT then
      redis.call('HDEL', 'torchq:work:made', key)
    end
  elseif redis.call('HEXISTS', 'torchq:reservations', key) == 1 then
    redis.call('HSET', 'torchq:work:made', key, made)
  end
end

-- Remember the version that the run has settled. Return whether that covers the changes that were offered meanwhile.
local function settle(key, settled, made, dirty)
  local name = 'torchq:work:settled:' .. key
  if settled == '0' then
    redis.call('DEL', name)
    return false
  end
  redis.call('SET', name, settled .. ' ' .. made, 'EX', ARGV[4])
  local job, pods = string.match(dirty or '', '^(%d+) (%d+)$')
  return job and tonumber(job) <= tonumber(settled) and tonumber(pods) <= tonumber(made)
end

local function finish(key, record, requeue_after, failed, made, settled, now)
  local again = not settle(key, failed and '0' or settled, made, record.dirty) and record.dirty
  end_lease(key, record)
  local delay = tonumber(requeue_after)
  if failed then
    delay = backoff(record)
  else
    record.failures = nil
  end
  if again or (delay and delay <= 0) then
    make_ready(key, record, record.tenant or '', seconds(now))
  elseif delay then
    record.state = 'delayed'
    redis.call('ZADD', 'torchq:work:delayed', seconds(now + delay), key)
  else
    redis.call('HDEL', 'torchq:work:records', key)
    return
  end
  keep_record(key, record)
end

local now = clock(ARGV[1])
local count = 0
for i = 5, #ARGV, 6 do
  local key, token = ARGV[i], ARGV[i + 1]
  local record = record_of(key)
  if record and record.token == token then
    note(key, ARGV[i + 3] == '1', ARGV[i + 4])
    finish(key, record, ARGV[i + 2], ARGV[i + 3] == '1', ARGV[i + 4], ARGV[i + 5], now)
    count = count + 1
  end
end
if count > 0 then
  redis.call('HINCRBY', 'torchq:work:tally', 'runs', count)
end
return count
