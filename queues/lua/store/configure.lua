-- Set all queues and the pool.
--
-- ARGV: epoch (0: any), JSON of the pool (empty: none), JSON list of the counted resources, then per queue:
-- name, JSON settings, JSON rules
-- Keys and preludes: lib/store.lua, lib/usage.lua, lib/cohorts.lua
-- Returns: the revision, which rises only if something changed. Errors STORELOST, STALEEPOCH.

local function all_in(left, right)
  for name, spec in pairs(left) do
    if right[name] ~= spec then
      return false
    end
  end
  return true
end

local function aging_of(text)
  local _, rules = rules_of(text)
  return rules.aging_seconds
end

-- Sort all entries of a queue again. This is needed if its seconds of age per step of priority change.
local function reorder(queue, old_aging, aging)
  if aging == old_aging then
    return
  end
  local order = 'torchq:order:' .. queue
  for _, place in ipairs(redis.call('ZRANGE', order, 0, -1)) do
    redis.call('ZADD', order, score(cjson.decode(content(redis.call('HGET', 'torchq:entries', key_of(place)))), aging), place)
  end
end

local function forget_queue(queue, old_rules)
  reorder(queue, aging_of(old_rules), DEFAULT_AGING)
  for _, hash in ipairs({ 'torchq:queues', 'torchq:rules', 'torchq:overtaken' }) do
    redis.call('HDEL', hash, queue)
  end
end

local function change(current, desired, current_rules, desired_rules)
  for queue in pairs(current) do
    if not desired[queue] then
      forget_queue(queue, current_rules[queue])
    end
  end
  for queue, spec in pairs(desired) do
    redis.call('HSET', 'torchq:queues', queue, spec)
    redis.call('HSET', 'torchq:rules', queue, desired_rules[queue])
    reorder(queue, aging_of(current_rules[queue]), aging_of(desired_rules[queue]))
  end
end

-- Count the usage again from the reservations, because other resources are counted now.
local function count_usage(names)
  redis.call('SET', 'torchq:counted', names)
  redis.call('DEL', 'torchq:usage')
  for _, text in ipairs(redis.call('HVALS', 'torchq:reservations')) do
    local reservation = cjson.decode(text)
    charge(reservation.queue, reservation.charge, 1)
  end
  save_books()
end

local refused = refusal(ARGV[1])
if refused then
  return refused
end
local pool, counted, desired, desired_rules = ARGV[2], ARGV[3], {}, {}
for at = 4, #ARGV, 3 do
  desired[ARGV[at]], desired_rules[ARGV[at]] = ARGV[at + 1], ARGV[at + 2]
end
local current = table_of(redis.call('HGETALL', 'torchq:queues'))
local current_pool = redis.call('GET', 'torchq:pool') or ''
local revision = redis.call('GET', 'torchq:revision')
local same_names = counted == redis.call('GET', 'torchq:counted')
if revision and same_names and pool == current_pool and all_in(current, desired) and all_in(desired, current) then
  return tonumber(revision)
end
change(current, desired, table_of(redis.call('HGETALL', 'torchq:rules')), desired_rules)
if not same_names then
  count_usage(counted)
end
count_cohorts()
if pool == '' then
  redis.call('DEL', 'torchq:pool')
else
  redis.call('SET', 'torchq:pool', pool)
end
redis.call('SET', 'torchq:settled', whole(redis.call('INCR', 'torchq:change')))
return redis.call('INCR', 'torchq:revision')
