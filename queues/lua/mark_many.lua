-- Prelude: mark() of many keys that were just committed, with fewer calls. Needs mark.lua, which says what it means.
--
-- mark_many(keys, tenants, count, now): as mark(key, tenant, '0', now) of each, in their order; no key twice. A record without
-- "seen" is one of which nothing has been seen.

local TOGETHER = 64

-- The names of some keys' records, and whether there is none of them, as with most keys of new picks.
local function records(keys, from, to)
  local names = {}
  for at = from, to do
    names[at - from + 1] = 'torchq:work:key:' .. keys[at]
  end
  return names, redis.call('EXISTS', unpack(names)) == 0
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
    local names, none = records(keys, from, to)
    for at = from, to do
      local key, tenant, record = keys[at], tenants[at], names[at - from + 1]
      local state = not none and redis.call('HGET', record, 'state')
      if state == 'leased' or state == 'ready' then
        mark(key, tenant, '0', now)
      else
        wake(key, record, state, tenant, now)
        local some = ready[tenant]
        if not some then
          some = {}
          ready[tenant] = some
          order[#order + 1] = tenant
        end
        some[#some + 1] = key
        woken = woken + 1
      end
    end
  end
  push(ready, order, woken)
end
