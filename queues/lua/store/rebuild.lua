-- Rebuild the store, in three steps so that no step blocks the server for long. `begin` empties the store, which is lost from
-- then on. `charge` and put.lua fill it. `open` ends the rebuild. A process that begins under a higher epoch takes over.
--
-- ARGV: epoch, step; then for `begin`, the caller's installation as torchq:owner has it, empty if it is not known; for `charge`, per reservation: job key, its JSON text
-- Keys and preludes: lib/store.lua, lib/usage.lua, lib/cohorts.lua
-- Returns: 1. Errors STALEEPOCH, STORELOST; FOREIGNSTORE, with nothing changed, if the store has another owner.

local EPOCH, STEP = ARGV[1], ARGV[2]
local own_epoch = tonumber(EPOCH)

local function number(key)
  return tonumber(redis.call('GET', key) or 0)
end

local function too_late(than)
  return redis.error_reply('STALEEPOCH cannot rebuild under epoch ' .. EPOCH .. ': the queues are at ' .. whole(than))
end

local function begin()
  local owner, own = redis.call('GET', 'torchq:owner') or ARGV[3], ARGV[3]
  if owner ~= own and own ~= '' then
    return redis.error_reply('FOREIGNSTORE the queues belong to another installation: ' .. owner)
  end
  local current, other = number('torchq:epoch'), number('torchq:rebuilding')
  if own_epoch <= current or own_epoch < other then
    return too_late(math.max(current, other))
  end
  redis.call('SET', 'torchq:rebuilding', EPOCH)
  redis.call('SET', 'torchq:layout', LAYOUT)
  if own ~= '' then
    redis.call('SET', 'torchq:owner', own)
  end
  for _, queue in ipairs(redis.call('ZRANGE', 'torchq:changed', 0, -1)) do
    redis.call('DEL', 'torchq:order:' .. queue)
  end
  redis.call('DEL', 'torchq:epoch', 'torchq:commit', 'torchq:usage', 'torchq:cohorts', 'torchq:shared', 'torchq:ports')
  redis.call('DEL', 'torchq:entries', 'torchq:reservations')
  redis.call('DEL', 'torchq:change', 'torchq:changed', 'torchq:settled')
  if has_lost_rules() then
    redis.call('DEL', 'torchq:queues', 'torchq:rules') -- the leader configures all queues after its rebuild
  end
  return 1
end

local function reserve_all()
  local last = number('torchq:port')
  for at = 3, #ARGV, 2 do
    if redis.call('HEXISTS', 'torchq:reservations', ARGV[at]) == 0 then
      reserve(ARGV[at], ARGV[at + 1])
      last = math.max(last, cjson.decode(ARGV[at + 1]).port)
    end
  end
  redis.call('SET', 'torchq:port', whole(last))
  save_books()
  return 1
end

-- The versions of pods that workers have made stay, for keys with a charge.
local function prune_made()
  for _, key in ipairs(redis.call('HKEYS', 'torchq:work:made')) do
    if redis.call('HEXISTS', 'torchq:reservations', key) == 0 then
      redis.call('HDEL', 'torchq:work:made', key)
    end
  end
end

local function open()
  prune_made()
  count_cohorts()
  redis.call('SET', 'torchq:change', whole(own_epoch * CHANGES_PER_EPOCH))
  redis.call('SET', 'torchq:settled', whole(own_epoch * CHANGES_PER_EPOCH))
  redis.call('SET', 'torchq:epoch', EPOCH)
  redis.call('DEL', 'torchq:rebuilding')
  return 1
end

if STEP == 'begin' then
  return begin()
end
if number('torchq:epoch') == own_epoch then
  return 1
end
local other = number('torchq:rebuilding')
if other ~= own_epoch then
  return other > own_epoch and too_late(other) or redis.error_reply('STORELOST the rebuild under epoch ' .. EPOCH .. ' was lost')
end
return STEP == 'charge' and reserve_all() or open()
