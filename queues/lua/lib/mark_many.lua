-- Prelude: mark() for many keys that were just committed, with fewer calls. Needs lib/records.lua, lib/mark.lua and lib/store.lua.
--
-- mark_many(keys, groups, now): does mark(key, queue, '0', now) for each key. groups are {queue, keys}: the keys by tenant. No
-- key comes twice. In a record without "seen", no version of pods is known.

-- Return the texts of the existing records by key.
local function known_records(keys)
  local found, texts = values('torchq:work:records', keys), {}
  for at = 1, #keys do
    if found[at] then
      texts[keys[at]] = found[at]
    end
  end
  return texts
end

local function awake(key, record, tenant, now)
  if record.state == 'delayed' then
    redis.call('ZREM', 'torchq:work:delayed', key)
  end
  record.state, record.tenant, record.since = 'ready', tenant, now
  return cjson.encode(record)
end

-- Return the keys of a tenant that become ready now, and the new records of those that had one.
local function woken(group, known, now)
  local ready, texts = {}, {}
  for _, key in ipairs(group.keys) do
    local record = known[key] and cjson.decode(known[key])
    if record and (record.state == 'leased' or record.state == 'ready') then
      mark(key, group.queue, '0', now)
    else
      ready[#ready + 1] = key
      texts[key] = record and awake(key, record, group.queue, now)
    end
  end
  return ready, texts
end

local function mark_many(keys, groups, now)
  local known, records, count, turns = known_records(keys), {}, 0, {}
  local head = '{"since":"' .. now .. '","state":"ready","tenant":'
  for _, group in ipairs(groups) do
    local ready, texts, rested = group.keys, known, head .. quoted(group.queue) .. '}'
    if next(known) then
      ready, texts = woken(group, known, now)
    end
    for at = 1, #ready do
      local key = ready[at]
      records[count + 1], records[count + 2] = key, texts[key] or rested
      count = count + 2
    end
    if #ready > 0 and write('RPUSH', 'torchq:work:ready:' .. group.queue, ready) == #ready then
      turns[#turns + 1] = group.queue
    end
  end
  write('HSET', 'torchq:work:records', records)
  write('RPUSH', 'torchq:work:tenants', turns)
  if count > 0 then
    redis.call('INCRBY', 'torchq:work:ready', count / 2)
  end
end
