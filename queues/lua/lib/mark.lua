-- Prelude: mark a key as work. Every script that changes what a worker should do calls it, so that no crash can separate
-- the change from its dispatch. It is put in front of such a script; it takes no KEYS or ARGV of its own. Needs lib/records.lua.
--
-- mark(key, tenant, seen, now, kind): the key will run at least once after this call, in whatever state it is.
--   key     namespace/name/uid of the job
--   tenant  the tenant whose turn the key uses: the queue of the pick, or the tenant of the offer
--   seen    newest resourceVersion known of the key's pods, as text or number; "0" if none. The record keeps the largest.
--   now     seconds since 1970, as text or number
--   kind    ends | begins | tells: what the run is for, from the most urgent (queues/work_kinds.py); nil: begins
--
-- Keys (of all scripts in lua/work):
--   torchq:work:records         hash    key that waits or that a worker has -> JSON; all its fields but failures are text:
--                                         state     ready | delayed | leased
--                                         tenant, seen as above
--                                         kind      as above; missing means begins. Of a leased key that is dirty, it is that of the
--                                                   next run
--                                         since     when it became ready, seconds
--                                         failures  runs in a row that failed; missing means 0, kept while it waits
--                                         token     fencing token of the present lease (leased only)
--                                         leased    when it was last leased, seconds
--                                         holder    tenant whose turn the lease has used (leased only)
--                                         run       random word of the call that began its run (running only)
--                                         epoch     epoch under which its run began (running only)
--                                         dirty     "1" if the key was marked while leased: it runs once more. Or "<version>
--                                                   <seen>" of a change of the job: it runs once more unless the run settles it
--   torchq:work:ready:<lane>    list    ready keys of one tenant and kind, oldest first. The lane of a tenant's keys that begin is
--                                       <tenant>, of others <kind>:<tenant>
--   torchq:work:tenants         list    lanes with ready keys that begin; the first one has the next turn
--   torchq:work:tenants:<kind>  list    the same for the other kinds
--   torchq:work:ready           string  number of ready keys
--   torchq:work:delayed         zset    key -> when it is due, seconds
--   torchq:work:leases          zset    key -> when its lease ends, seconds
--   torchq:work:held            hash    tenant -> number of its leases, at least 1
--   torchq:work:recent          zset    tenant -> when a key of it was last leased, seconds; for some time
--   torchq:work:members         hash    worker -> JSON {threads, version, layout, owner, clock, until: when its registration ends,
--                                       seconds}; later layouts may only add fields (queues/registrations.py)
--   torchq:work:workers         zset    worker of a layout before 10 -> when its registration ends, seconds; only read
--   torchq:work:threads         hash    worker of a layout before 10 -> number of its threads; nobody reads it
--   torchq:work:tally           hash    runs: number of all finished runs, for `torchq status`
--   torchq:work:made            hash    key with a reservation -> newest resourceVersion of its pods that a worker knew when it
--                                       gave the key back; DOUBT after a run that failed or whose worker died, until the next
--                                       run succeeds
--   torchq:work:brief:<key>     string  what the leader has seen of the job (reconcilers/views/job_brief.py), for the next run; expires soon
--   torchq:work:settled:<key>   string  "<version> <made>": the job's resourceVersion at which the last run found nothing left to
--                                       do, and the newest version of its pods that the run knew; expires soon

local DOUBT = '9007199254740992'  -- more than any resourceVersion

local function doubt(key)
  if redis.call('HEXISTS', 'torchq:reservations', key) == 1 then
    redis.call('HSET', 'torchq:work:made', key, DOUBT)
  end
end

local RANKS = {ends = 1, begins = 2, tells = 3}
local LANES = {ends = 'torchq:work:tenants:ends', begins = 'torchq:work:tenants', tells = 'torchq:work:tenants:tells'}

local function more_urgent(kind, other)
  return RANKS[kind or 'begins'] < RANKS[other or 'begins']
end

-- Return the lane of a tenant's keys of a kind, and the list of the lanes of that kind.
local function lane_of(tenant, kind)
  if not kind or kind == 'begins' then
    return tenant, LANES.begins
  end
  return kind .. ':' .. tenant, LANES[kind]
end

-- End the lease of a key: the tenant that holds it has one thread more to take.
local function end_lease(key, record)
  redis.call('ZREM', 'torchq:work:leases', key)
  if record.holder and redis.call('HINCRBY', 'torchq:work:held', record.holder, -1) <= 0 then
    redis.call('HDEL', 'torchq:work:held', record.holder)
  end
  record.token, record.run, record.epoch, record.dirty, record.holder = nil, nil, nil, nil, nil
end

local function make_ready(key, record, tenant, now)
  record.state, record.tenant, record.since = 'ready', tenant, now
  local lane, turns = lane_of(tenant, record.kind)
  if redis.call('RPUSH', 'torchq:work:ready:' .. lane, key) == 1 then
    redis.call('RPUSH', turns, lane)
  end
  redis.call('INCR', 'torchq:work:ready')
end

-- Move a ready key to the end of its tenant's lane of a more urgent kind.
local function hasten(key, record, kind)
  local lane, turns = lane_of(record.tenant or '', record.kind)
  local ready = 'torchq:work:ready:' .. lane
  local left = redis.call('LREM', ready, 1, key)
  if left > 0 and redis.call('EXISTS', ready) == 0 then
    redis.call('LREM', turns, 1, lane)
  end
  redis.call('INCRBY', 'torchq:work:ready', -left)
  record.kind = kind
  make_ready(key, record, record.tenant or '', record.since)
end

-- Note on the record of a leased key that it runs once more, as the most urgent kind that was marked meanwhile.
local function mark_leased(record, dirty, tenant, kind)
  if not record.dirty or more_urgent(kind, record.kind) then
    record.kind = kind
  end
  record.dirty, record.tenant = dirty, tenant
end

-- Keep the newest version of pods in a record. Return whether it is newer than before.
local function keep_newest(record, seen)
  local newer = not record.seen or tonumber(seen) > tonumber(record.seen)
  record.seen = newer and seen or record.seen
  return newer
end

local function mark(key, tenant, seen, now, kind)
  local record = record_of(key) or {}
  local newer = keep_newest(record, seen)
  if record.state == 'leased' then
    mark_leased(record, '1', tenant, kind)
  elseif record.state == 'ready' and more_urgent(kind, record.kind) then
    hasten(key, record, kind)
  elseif record.state == 'ready' and not newer then
    return
  elseif record.state ~= 'ready' then
    if record.state == 'delayed' then
      redis.call('ZREM', 'torchq:work:delayed', key)
    end
    record.kind = kind
    make_ready(key, record, tenant, now)
  end
  keep_record(key, record)
end
