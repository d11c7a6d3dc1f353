-- Make keys ready that are due or whose lease ended. Then take ready keys, kind by kind and in each kind tenant by tenant in turn,
-- lease them, and push them to the workers as RQ jobs. It is one step, so that no crash can lose a key between its lease and its job. It takes at most as
-- many keys as registered workers have free threads, so that RQ's own queue stays short and its order does not matter.
-- While several tenants have keys, each holds a small part of the threads, and two at least: a key of a tenant with few keys
-- waits for no run of another tenant, and its own run has few beside it.
--
-- Preludes: clock, epoch, records, mark (which lists the keys' schema).
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       2 layout of the caller
--       3 seconds a lease lasts while its batch waits in RQ
--       4 the most keys in one batch
--       5 a random word for this call: it makes tokens and RQ job ids unique, also after the server lost its data; a counter
--         in Redis makes them unique if the client sends the same call twice
--       6 the same time in the format of RQ (2026-01-31T12:00:00.000000Z)
--       7 seconds RQ lets a batch run   8 seconds RQ keeps a failed batch
--       9 the part of all threads that one tenant may hold while another has had a key leased within the last ...
--       10 seconds
-- Returns: number of keys pushed. Error STORELOST (lib/epoch.lua).
--
-- Further keys, in the format of RQ 2.12:
--   torchq:work:dispatches  string  number of keys pushed so far, for the turns of kinds
--   rq:queues               set     names of RQ's queues
--   rq:queue:torchq-<layout>  list  ids of waiting RQ jobs
--   rq:job:<id>             hash    data: JSON [function, null, [[[key, token], ...]], {}], and RQ's bookkeeping

local LAYOUT = ARGV[2]
local QUEUE = 'torchq-' .. LAYOUT  -- each layout has its own queue, which no worker of another layout knows
local WAITING = 'rq:queue:torchq-' .. LAYOUT
local WAKE = 1000  -- the most keys that one call makes ready; it limits the time that other clients wait

local function wake(zset, now)
  local keys = redis.call('ZRANGEBYSCORE', zset, '-inf', seconds(now), 'LIMIT', 0, WAKE)
  for _, key in ipairs(keys) do
    redis.call('ZREM', zset, key)
    local record = record_of(key) or {}
    if record.run then  -- its worker died, and it is unknown what the run has done
      record.failures = (record.failures or 0) + 1
      doubt(key)
    end
    end_lease(key, record)
    make_ready(key, record, record.tenant or '', seconds(now))
    keep_record(key, record)
  end
end

-- Return the member in a text, or nil if it cannot be read or its registration has ended.
local function alive(text, now)
  local readable, member = pcall(cjson.decode, text)
  local ends = readable and type(member) == 'table' and tonumber(member['until'])
  return ends and ends > tonumber(seconds(now)) and member
end

local function is_ours(member, owner)
  return member.layout == tonumber(LAYOUT) and (not owner or (member.owner or '') == '' or member.owner == owner)
end

-- Return how many threads and workers may take the batches of this leader. Remove ended registrations, of any layout.
local function registered(now)
  local threads, workers = 0, 0
  local owner, members = redis.call('GET', 'torchq:owner'), redis.call('HGETALL', 'torchq:work:members')
  for at = 1, #members, 2 do
    local member = alive(members[at + 1], now)
    if not member then
      redis.call('HDEL', 'torchq:work:members', members[at])
    elseif is_ours(member, owner) then
      local own = tonumber(member.threads) or 0  -- none where the clock is wrong
      threads = threads + own
      workers = workers + (own > 0 and 1 or 0)
    end
  end
  return threads, workers
end

-- The kind that goes first with each of eight keys in a row, as in queues/work_kinds.py.
local TURNS = {'ends', 'begins', 'ends', 'ends', 'begins', 'ends', 'tells', 'ends'}
local over = {}  -- the kinds of which no key may be taken: none becomes ready, and no lease ends, while keys are taken
local recent, most, kept  -- two of the recent tenants; the threads that are one's share; whether a key waits for that share

-- Return whether a tenant may hold one more thread.
local function may_hold(tenant)
  local other = recent[recent[1] == tenant and 2 or 1]
  return not other or tonumber(redis.call('HGET', 'torchq:work:held', tenant) or '0') < most
end

-- Return the next lane whose tenant may hold one more thread. The lanes before it go to the end.
local function next_lane(kind)
  for _ = 1, redis.call('LLEN', LANES[kind]) do
    local lane = redis.call('LPOP', LANES[kind])
    if may_hold(string.match(lane, '[^:]*$')) then
      return lane
    end
    kept = true
    redis.call('RPUSH', LANES[kind], lane)
  end
end

local function take_kind(kind)
  local lane = not over[kind] and next_lane(kind)
  if not lane then
    over[kind] = true
    return nil
  end
  local ready = 'torchq:work:ready:' .. lane
  local key = redis.call('LPOP', ready)
  if redis.call('EXISTS', ready) == 1 then
    redis.call('RPUSH', LANES[kind], lane)
  end
  return key
end

-- Return the next ready key; `number` counts the keys that were ever taken.
local function take(number)
  return take_kind(TURNS[number % #TURNS + 1]) or take_kind('ends') or take_kind('begins') or take_kind('tells')
end

local function lease(key, token, now, ends)
  local record = record_of(key) or {}
  record.state, record.token, record.leased, record.holder = 'leased', token, seconds(now), record.tenant or ''
  keep_record(key, record)
  redis.call('HINCRBY', 'torchq:work:held', record.holder, 1)
  redis.call('ZADD', 'torchq:work:recent', seconds(now), record.holder)
  redis.call('ZADD', 'torchq:work:leases', seconds(ends), key)
end

local function push(id, batch)
  local data = '["torchq.reconcile", null, [' .. cjson.encode(batch) .. '], {}]'
  local job = 'rq:job:' .. id
  redis.call('HSET', job, 'created_at', ARGV[6], 'enqueued_at', ARGV[6], 'data', data, 'origin', QUEUE,
    'status', 'queued', 'description', #batch .. ' keys', 'timeout', ARGV[7], 'result_ttl', '0', 'failure_ttl', ARGV[8])
  redis.call('EXPIRE', job, ARGV[8])  -- the record of a batch that no worker takes expires
  redis.call('SADD', 'rq:queues', WAITING)
  redis.call('RPUSH', WAITING, id)
end

local epoch, lost = live_epoch(LAYOUT)
if lost then
  return lost
end
local now = clock(ARGV[1])
wake('torchq:work:delayed', now)
wake('torchq:work:leases', now)

local threads, workers = registered(now)
local ready, leased = tonumber(redis.call('GET', 'torchq:work:ready') or '0'), redis.call('ZCARD', 'torchq:work:leases')
local left = math.min(ready, threads - leased)
if leased == 0 then
  redis.call('DEL', 'torchq:work:held')
end
redis.call('ZREMRANGEBYSCORE', 'torchq:work:recent', '-inf', seconds(now - tonumber(ARGV[10])))
recent = redis.call('ZRANGE', 'torchq:work:recent', 0, 1)
most = math.max(2, math.ceil(threads * tonumber(ARGV[9])))  -- with one, a thread of two would idle
-- While each worker has a waiting batch, no key is dispatched, and threads that become free wait for the next batch. A batch per
-- free thread would cost RQ's 30 round trips for each key.
if redis.call('LLEN', WAITING) >= workers then
  left = 0
end
-- In an idle system every key is a batch, so that any free worker can take it. In a busy system a batch has many keys, to share
-- RQ's cost, but at most as many as one worker has threads.
local share = math.max(1, workers)
local size = math.max(1, math.min(tonumber(ARGV[4]), math.ceil(ready / (2 * share)), math.ceil(threads / share)))
local first = tonumber(redis.call('GET', 'torchq:work:dispatches') or '0')
local word = ARGV[5] .. '-' .. string.format('%.0f', first)
local pushed, batch = 0, {}
while pushed < left do
  local key = take(first + pushed)
  if not key then
    break
  end
  pushed = pushed + 1
  local token = epoch .. '-' .. word .. '-' .. pushed
  lease(key, token, now, now + tonumber(ARGV[3]))
  batch[#batch + 1] = {key, token}
  if #batch == size then
    push('torchq-' .. word .. '-' .. pushed, batch)
    batch = {}
  end
end
if #batch > 0 then
  push('torchq-' .. word .. '-' .. pushed, batch)
end
if pushed < left and not kept then
  redis.call('SET', 'torchq:work:ready', 0)
elseif pushed > 0 then
  redis.call('INCRBY', 'torchq:work:ready', -pushed)
end
if pushed > 0 then
  redis.call('INCRBY', 'torchq:work:dispatches', pushed)
end
return pushed
