-- Prelude: mark() of many keys that were just committed, with fewer calls. Needs mark.lua, which says what it means.
--
-- mark_many(keys, tenants, count, now): as mark(key, tenant, '0', now) of each, in their order; no key twice.

local function wake(key, tenant, known, now)
  local record = 'torchq:work:key:' .. key
  if known[1] == 'delayed' then
    redis.call('ZREM', 'torchq:work:delayed', key)
  end
  if known[2] then
    redis.call('HSET', record, 'state', 'ready', 'tenant', tenant, 'since', now)
  else
    redis.call('HSET', record, 'seen', '0', 'state', 'ready', 'tenant', tenant, 'since', now)
  end
end

local function mark_many(keys, tenants, count, now)
  local ready, order, woken = {}, {}, 0
  for at = 1, count do
    local key, tenant = keys[at], tenants[at]
    local known = redis.call('HMGET', 'torchq:work:key:' .. key, 'state', 'seen')
    if known[1] == 'leased' or known[1] == 'ready' then
      mark(key, tenant, '0', now)
    else
      wake(key, tenant, known, now)
      woken = woken + 1
      if not ready[tenant] then
        ready[tenant] = {}
        order[#order + 1] = tenant
      end
      table.insert(ready[tenant], key)
    end
  end
  local turns = {}
  for _, tenant in ipairs(order) do
    if write('RPUSH', 'torchq:work:ready:' .. tenant, ready[tenant]) == #ready[tenant] then
      turns[#turns + 1] = tenant
    end
  end
  write('RPUSH', 'torchq:work:tenants', turns)
  if woken > 0 then
    redis.call('INCRBY', 'torchq:work:ready', woken)
  end
end
