-- Set all queues and the pool.
--
-- ARGV: epoch (0: whatever it is), JSON of the pool (empty: none), then per queue: name, JSON settings
-- Keys and preludes: store.lua
-- Returns: the revision, which rises only if something changed. Errors STORELOST, STALEEPOCH.

local function settings(from)
  local found = {}
  for at = from, #ARGV, 2 do
    found[ARGV[at]] = ARGV[at + 1]
  end
  return found
end

local function known_settings()
  local flat, found = redis.call('HGETALL', 'torchq:queues'), {}
  for at = 1, #flat, 2 do
    found[flat[at]] = flat[at + 1]
  end
  return found
end

local function all_in(left, right)
  for name, spec in pairs(left) do
    if right[name] ~= spec then
      return false
    end
  end
  return true
end

-- An age per step of priority that changes moves every entry of the queue.
local function reorder(queue, old_aging, aging)
  if aging == old_aging then
    return
  end
  local order = 'torchq:order:' .. queue
  for _, member in ipairs(redis.call('ZRANGE', order, 0, -1)) do
    local key = string.gsub(member, '!', '/')
    redis.call('ZADD', order, score(cjson.decode(redis.call('HGET', 'torchq:entries', key)), aging), member)
  end
end

local function forget_queue(queue, spec)
  reorder(queue, aging_of(spec), DEFAULT_AGING)
  redis.call('HDEL', 'torchq:queues', queue)
  redis.call('HDEL', 'torchq:accounts', queue)
  redis.call('HDEL', 'torchq:overtaken', queue)
end

local function change(known, wanted)
  for queue, spec in pairs(known) do
    if not wanted[queue] then
      forget_queue(queue, spec)
    end
  end
  for queue, spec in pairs(wanted) do
    redis.call('HSET', 'torchq:queues', queue, spec)
    reorder(queue, aging_of(known[queue]), aging_of(spec))
  end
end

local refused = refusal(ARGV[1])
if refused then
  return refused
end
local pool, known, wanted = ARGV[2], known_settings(), settings(3)
local known_pool = redis.call('GET', 'torchq:pool') or ''
local revision = redis.call('GET', 'torchq:revision')
if revision and pool == known_pool and all_in(known, wanted) and all_in(wanted, known) then
  return tonumber(revision)
end
change(known, wanted)
if pool == '' then
  redis.call('DEL', 'torchq:pool')
else
  redis.call('SET', 'torchq:pool', pool)
end
return redis.call('INCR', 'torchq:revision')
