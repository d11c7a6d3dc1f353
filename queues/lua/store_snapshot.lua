-- Everything `choose` needs, read at one moment; or what of it has changed. Reads only.
--
-- ARGV: epoch (0: whatever it is), how many heads of each queue, the change that is known already (empty: none), then names
--       of queues to show in any case
-- Keys and preludes: store.lua
-- Returns: JSON text {epoch, revision, change, whole, clock, usage (of the pool), if whole: pool, and queues: a list of lists,
-- each one: settings (if not whole: the name), account, overtaken, usage, number of waiting entries, flat list of version
-- and entry of the heads}. What is missing is null; clock and accounts are strings.
-- Errors STORELOST, STALEEPOCH.

local refused = refusal(ARGV[1])
if refused then
  return refused
end
local HEADS, SINCE = tonumber(ARGV[2]), tonumber(ARGV[3])
local numbers = redis.call('MGET', 'torchq:epoch', 'torchq:revision', 'torchq:change', 'torchq:settled')
local CHANGE = tonumber(numbers[3])
local WHOLE = not (SINCE and SINCE >= tonumber(numbers[4]) and SINCE <= CHANGE)

-- The names of the queues to show.
local function shown()
  if WHOLE then
    return redis.call('HKEYS', 'torchq:queues')
  end
  local names, there = redis.call('ZRANGEBYSCORE', 'torchq:changed', '(' .. ARGV[3], '+inf'), {}
  for _, name in ipairs(names) do
    there[name] = true
  end
  for at = 4, #ARGV do
    if not there[ARGV[at]] then
      there[ARGV[at]] = true
      names[#names + 1] = ARGV[at]
    end
  end
  return names
end

local queues = shown()
local settings = values('torchq:queues', queues)
local accounts, overtaken = values('torchq:accounts', queues), values('torchq:overtaken', queues)
local usage = values('torchq:usage', queues)

-- The first waiting jobs of all queues, one after the other; where each queue's begin; how many wait in each.
local keys, first, waiting = {}, {}, {}
for at, queue in ipairs(queues) do
  local order = 'torchq:order:' .. queue
  first[at] = #keys + 1
  waiting[at] = settings[at] and redis.call('ZCARD', order) or 0
  if waiting[at] > 0 and HEADS > 0 then
    for _, member in ipairs(redis.call('ZRANGE', order, 0, HEADS - 1)) do
      keys[#keys + 1] = (string.gsub(member, '!', '/'))
    end
  end
end
first[#queues + 1] = #keys + 1
local versions, entries = values('torchq:versions', keys), values('torchq:entries', keys)

local function heads(at)
  local found = {}
  for each = first[at], first[at + 1] - 1 do
    found[#found + 1] = versions[each] or 'null'
    found[#found + 1] = entries[each] or 'null'
  end
  return table.concat(found, ',')
end

local function text(value)
  return value and '"' .. value .. '"' or 'null'
end

local views = {}
for at, queue in ipairs(queues) do
  if settings[at] then
    views[#views + 1] = table.concat({
      '[' .. (WHOLE and settings[at] or quoted(queue)),
      text(accounts[at]),
      overtaken[at] or 'null',
      usage[at] or '{}',
      whole(waiting[at]),
      '[' .. heads(at) .. ']]',
    }, ',')
  end
end
return table.concat({
  '{"epoch":' .. numbers[1],
  '"revision":' .. (numbers[2] or '0'),
  '"change":' .. numbers[3],
  '"whole":' .. tostring(WHOLE),
  '"clock":' .. text(redis.call('GET', 'torchq:clock')),
  '"usage":' .. (redis.call('HGET', 'torchq:usage', '') or '{}'),
  '"pool":' .. (WHOLE and redis.call('GET', 'torchq:pool') or 'null'),
  '"queues":[' .. table.concat(views, ',') .. ']}',
}, ',')
