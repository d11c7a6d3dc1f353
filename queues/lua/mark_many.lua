-- Prelude: mark() of many keys that were just committed, with fewer calls. Needs records.lua, mark.lua, which says what it
-- means, and store.lua.
--
-- mark_many(keys, tenants, count, now): as mark(key, tenant, '0', now) of each, in their order; no key twice. A record without
-- "seen" is one of which nothing has been seen.

-- What the records of all keys of one tenant say that were at rest.
local function rested(tenant, now)
  return '{"since":"' .. now .. '","state":"ready","tenant":' .. quoted(tenant) .. '}'
end

local function woken(key, record, tenant, now)
  if record.state == 'delayed' then
    redis.call('ZREM', 'torchq:work:delayed', key)
  end
  record.state, record.tenant, record.since = 'ready', tenant, now
  return cjson.encode(record)
end

local function push(ready, count)
  local turns = {}
  for at = 1, #ready do
    local tenant, keys = ready[at].tenant, ready[at]
    if write('RPUSH', 'torchq:work:ready:' .. tenant, keys) == #keys then
      turns[#turns + 1] = tenant
    end
  end
  write('RPUSH', 'torchq:work:tenants', turns)
  if count > 0 then
    redis.call('INCRBY', 'torchq:work:ready', count)
  end
end

local function mark_many(keys, tenants, count, now)
  local known, texts, lists = values('torchq:work:records', keys), {}, {}
  local records, size, order = {}, 0, {}
  for at = 1, count do
    local key, tenant = keys[at], tenants[at]
    local text, record, some = texts[tenant], known[at] and cjson.decode(known[at]), lists[tenant]
    if not text then
      text, some = rested(tenant, now), { tenant = tenant }
      texts[tenant], lists[tenant] = text, some
    end
    if record and (record.state == 'leased' or record.state == 'ready') then
      mark(key, tenant, '0', now)
    else
      if #some == 0 then
        order[#order + 1] = some
      end
      some[#some + 1] = key
      records[size + 1], records[size + 2] = key, record and woken(key, record, tenant, now) or text
      size = size + 2
    end
  end
  write('HSET', 'torchq:work:records', records)
  push(order, size / 2)
end
