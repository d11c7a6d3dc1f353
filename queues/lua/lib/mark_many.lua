-- Prelude: mark() for many keys that were just committed, with fewer calls. Needs lib/records.lua, lib/mark.lua and lib/store.lua.
--
-- mark_many(keys, groups, now): does mark(key, queue, '0', now, 'begins') for each key. groups are {queue, keys}: the keys by tenant. No
-- key comes twice. In a record without "seen", no version of pods is known.

-- Return the texts of the existing records by key.
local function stored_records(keys)
  local answers, texts = values('torchq:work:records', keys), {}
  for at = 1, #keys do
    if answers[at] then
      texts[keys[at]] = answers[at]
    end
  end
  return texts
end

local function wake_record(key, record, tenant, now)
  if record.state == 'delayed' then
    redis.call('ZREM', 'torchq:work:delayed', key)
  end
  record.state, record.tenant, record.since, record.kind = 'ready', tenant, now, nil
  return cjson.encode(record)
end

-- Return the keys of a tenant that become ready now, and the new records of those that had one.
local function wake(group, stored, now)
  local ready, texts = {}, {}
  for _, key in ipairs(group.keys) do
    local record = stored[key] and cjson.decode(stored[key])
    if record and (record.state == 'leased' or record.state == 'ready') then
      mark(key, group.queue, '0', now)
    else
      ready[#ready + 1] = key
      texts[key] = record and wake_record(key, record, group.queue, now)
    end
  end
  return ready, texts
end

local function mark_many(keys, groups, now)
  local stored, records, count, turns = stored_records(keys), {}, 0, {}
  local head = '{"since":"' .. now .. '","state":"ready","tenant":'
  for _, group in ipairs(groups) do
    local ready, texts, new_record = group.keys, stored, head .. quoted(group.queue) .. '}'
    if next(stored) then
      ready, texts = wake(group, stored, now)
    end
    for at = 1, #ready do
      local key = ready[at]
      records[count + 1], records[count + 2] = key, texts[key] or new_record
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
