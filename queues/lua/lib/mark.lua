-- Prelude: mark a key as work. Every script that changes what a worker should do calls it, so that no crash can separate
-- the change from its dispatch. It is put in front of such a script; it takes no KEYS or ARGV of its own. Needs lib/records.lua.
--
-- mark(key, tenant, seen, now): whatever the key's state, it will be run at least once after this call.
--   key     namespace/name/uid of the job
--   tenant  whose turn it uses: the queue that the job was picked from, or what the offer says
--   seen    newest resourceVersion known for the key's pods, as text or number; "0" if none. The larger one is kept.
--   now     seconds since 1970, as text or number
--
-- Keys (of all work_*.lua scripts):
--   torchq:work:records         hash    key that is not at rest -> JSON, of which all but failures is text:
--                                         state     ready | delayed | leased
--                                         tenant, seen as above
--                                         since     when it became ready, seconds
--                                         failures  runs in a row that failed; missing means 0, kept while it waits
--                                         token     the fence of the present lease (leased only)
--                                         run       the word of the call that began its run (running only)
--                                         epoch     epoch under which its run began (running only)
--                                         dirty     "1" if it was marked while leased: it runs once more. Or "<version>
--                                                   <seen>" of a job that changed meanwhile: it does, unless the run settles it
--   torchq:work:ready:<tenant>  list    ready keys of one tenant, oldest first
--   torchq:work:tenants         list    tenants that have ready keys; the first one's turn is next
--   torchq:work:ready           string  number of ready keys
--   torchq:work:delayed         zset    key -> when it is due, seconds
--   torchq:work:leases          zset    key -> when its lease ends, seconds
--   torchq:work:workers         zset    worker -> when its registration ends, seconds
--   torchq:work:threads         hash    worker -> threads it has
--   torchq:work:tally           hash    runs: how many runs were ever given back, for people
--   torchq:work:made            hash    key with a reservation -> newest resourceVersion of its pods that a worker knew of
--                                       when it gave the key back; DOUBT after a run that failed or whose worker died, until
--                                       the next run has looked
--   torchq:work:settled:<key>   string  "<version> <made>": the job's resourceVersion after which its last run has left nothing to
--                                       do, and the newest one of its pods that the run knew of; expires soon

local DOUBT = '9007199254740992'  -- more than any resourceVersion

local function doubt(key)
  if redis.call('HEXISTS', 'torchq:reservations', key) == 1 then
    redis.call('HSET', 'torchq:work:made', key, DOUBT)
  end
end

local function make_ready(key, record, tenant, now)
  record.state, record.tenant, record.since = 'ready', tenant, now
  if redis.call('RPUSH', 'torchq:work:ready:' .. tenant, key) == 1 then
    redis.call('RPUSH', 'torchq:work:tenants', tenant)
  end
  redis.call('INCR', 'torchq:work:ready')
end

-- Whether that was news.
local function keep_newest(record, seen)
  local newer = not record.seen or tonumber(seen) > tonumber(record.seen)
  record.seen = newer and seen or record.seen
  return newer
end

local function mark(key, tenant, seen, now)
  local record = record_of(key) or {}
  local newer = keep_newest(record, seen)
  if record.state == 'leased' then
    record.dirty, record.tenant = '1', tenant
  elseif record.state == 'ready' and not newer then
    return
  elseif record.state ~= 'ready' then
    if record.state == 'delayed' then
      redis.call('ZREM', 'torchq:work:delayed', key)
    end
    make_ready(key, record, tenant, now)
  end
  keep_record(key, record)
end
