-- Mark keys as work, at once or after a delay. Safe to repeat.
--
-- Preludes: clock, epoch, records, mark (which lists the keys' schema).
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       2 layout of the caller
--       then for each offer: key, tenant, seen, delay in seconds, version of the job if a change of it or its pods is the only reason,
--       else 0, kind
-- Returns: number of offers. Error STORELOST (lib/epoch.lua).

local function mark_later(key, tenant, seen, due, kind)
  local record = record_of(key) or {}
  keep_newest(record, seen)
  if not record.state then
    record.state, record.tenant, record.kind = 'delayed', tenant, kind
    redis.call('ZADD', 'torchq:work:delayed', seconds(due), key)
  elseif record.state == 'delayed' then
    redis.call('ZADD', 'torchq:work:delayed', 'LT', seconds(due), key)
    record.kind = more_urgent(kind, record.kind) and kind or record.kind
  elseif record.state == 'leased' then
    mark_leased(record, '1', tenant, kind)
  elseif more_urgent(kind, record.kind) then
    hasten(key, record, kind)
  end
  keep_record(key, record)
end

-- Return the two versions in a text with a space between them.
local function versions(text)
  local job, pods = string.match(text or '', '^(%d+) (%d+)$')
  return tonumber(job or 0), tonumber(pods or 0)
end

-- Mark a key because its job or pods changed, unless the present or the last run has settled that version.
local function mark_changed(key, tenant, seen, now, version, kind)
  local record = record_of(key) or {}
  if record.state == 'leased' and record.dirty ~= '1' then
    local job, pods = versions(record.dirty)
    keep_newest(record, seen)
    local dirty = string.format('%.0f %.0f', math.max(job, version), math.max(pods, tonumber(seen)))
    mark_leased(record, dirty, tenant, kind)
    keep_record(key, record)
    return
  end
  local job, pods = versions(redis.call('GET', 'torchq:work:settled:' .. key))
  if record.state == 'leased' or record.state == 'ready' or job < version or pods < tonumber(seen) then
    mark(key, tenant, seen, now, kind)
  end
end

local _, lost = live_epoch(ARGV[2])
if lost then
  return lost
end
local now = clock(ARGV[1])
for i = 3, #ARGV, 6 do
  local key, tenant, seen, delay, version = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
  local kind = ARGV[i + 5]
  if delay > 0 then
    mark_later(key, tenant, seen, now + delay, kind)
  elseif version > 0 then
    mark_changed(key, tenant, seen, seconds(now), version, kind)
  else
    mark(key, tenant, seen, seconds(now), kind)
  end
end
return (#ARGV - 2) / 6
