-- Prelude: mark() of many keys that were just committed, with fewer calls. Needs mark.lua, which says what it means.
--
-- mark_many(keys, tenants, count, now): as mark(key, tenant, '0', now) of each, in their order; no key twice. A record without
-- "seen" is one of which nothing has been seen.

local TOGETHER = 64

-- What is known of some keys' records; most keys of new picks have none, which is asked for all at once.
local function records(keys, from, to)
  local names, known = {}, {}
  for at = from, to do
    names[#names + 1] = 'torchq:work:key:' .. keys[at]
  end
  local none = redis.call('EXISTS', unpack(names)) == 0
  for at, name in ipairs(names) do
    known[at] = none and {} or redis.call('HMGET', name, 'state', 'seen')
  end
  return names, known
end

local function wake(key, record, state, tenant, now)
  if state == 'delayed' then
    redis.call('ZREM', 'torchq:work:delayed', key)
  end
  redis.call('HSET', record, 'state', 'ready', 'tenant', tenant, 'since', now)
end

local function push(ready, tenants, count)
  local turns = {}
  for _, tenant in ipairs(tenants) do
    if write('RPUSH', 'torchq:work:ready:' .. tenant, ready[tenant]) == #ready[tenant] then
      turns[#turns + 1] = tenant
    end
  end
  write('RPUSH', 'torchq:work:tenants', turns)
  if count > 0 then
    redis.call('INCRBY', 'torchq:work:ready', count)
  end
end

local function mark_many(keys, tenants, count, now)
  local ready, order, woken = {}, {}, 0
  for from = 1, count, TOGETHER do
    local to = math.min(from + TOGETHER - 1, count)
    local names, known = records(keys, from, to)
    for at = from, to do
      local key, tenant, state = keys[at], tenants[at], known[at - from + 1][1]
      if state == 'leased' or state == 'ready' then
        mark(key, tenant, '0', now)
      else
        wake(key, names[at - from + 1], state, tenant, now)
        if not ready[tenant] then
          ready[tenant] = {}
          order[#order + 1] = tenant
        end
        table.insert(ready[tenant], key)
        woken = woken + 1
      end
    end
  end
  push(ready, order, woken)
end
