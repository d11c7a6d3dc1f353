-- Everything `choose` needs, read at one moment; or what of it has changed. Reads only.
--
-- ARGV: 1 epoch (0: whatever it is)   2 how many heads of each queue   3 the change that is known already (empty: none)
--       4 version: entries up to it are not said where a queue is shown because it changed, but for their versions (empty:
--         all are said)
--       5 how many names of queues follow to show in any case; then those; then queues to show if they have not changed,
--         each with the number of its first entries to leave out
-- Keys and preludes: store.lua
-- Returns: JSON text {epoch, revision, version (given last), change, whole, clock, usage (of the pool), if whole: pool}; then per
-- queue JSON text, a list: settings (if not whole: the name), account, overtaken, usage, number of waiting entries, how many
-- of them are left out, flat list of version and entry of the next ones. What is missing is null, an entry that is not said
-- 0; clock and accounts are strings. (To join it all here would take Lua as long as to find it.)
-- Errors STORELOST, STALEEPOCH.

local refused = refusal(ARGV[1])
if refused then
  return refused
end
local HEADS, SINCE, VERSION, NAMED = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local numbers = redis.call('MGET', 'torchq:epoch', 'torchq:revision', 'torchq:change', 'torchq:settled', 'torchq:version')
local CHANGE = tonumber(numbers[3])
local WHOLE = not (SINCE and SINCE >= tonumber(numbers[4]) and SINCE <= CHANGE)

-- The names of the queues to show; of which the known entries are not said; how many first entries are left out.
local function shown()
  if WHOLE then
    return redis.call('HKEYS', 'torchq:queues'), {}, {}
  end
  local names, brief, after = redis.call('ZRANGEBYSCORE', 'torchq:changed', '(' .. ARGV[3], '+inf'), {}, {}
  for _, name in ipairs(names) do
    brief[name] = VERSION ~= nil
  end
  for at = 6, 5 + NAMED do
    if brief[ARGV[at]] == nil then
      names[#names + 1] = ARGV[at]
    end
    brief[ARGV[at]] = false
  end
  for at = 6 + NAMED, #ARGV, 2 do
    if brief[ARGV[at]] == nil then
      names[#names + 1] = ARGV[at]
      after[ARGV[at]] = tonumber(ARGV[at + 1])
    end
    brief[ARGV[at]] = false
  end
  return names, brief, after
end

local queues, brief, after = shown()
local settings = values('torchq:queues', queues)
local accounts, overtaken = values('torchq:accounts', queues), values('torchq:overtaken', queues)
local usage = values('torchq:usage', queues)

-- The first waiting jobs to show of all queues, one after the other; where each queue's begin; how many wait in each.
local keys, count, first, waiting = {}, 0, {}, {}
for at, queue in ipairs(queues) do
  local order = 'torchq:order:' .. queue
  first[at] = count + 1
  waiting[at] = settings[at] and redis.call('ZCARD', order) or 0
  if waiting[at] > 0 and HEADS > 0 then
    local skipped = after[queue] or 0
    for _, member in ipairs(redis.call('ZRANGE', order, skipped, skipped + HEADS - 1)) do
      count = count + 1
      keys[count] = string.gsub(member, '!', '/')
    end
  end
end
first[#queues + 1] = count + 1
local versions = values('torchq:versions', keys)

-- The entries that are said, by their place in `keys`.
local function said()
  local wanted, places, found, number = {}, {}, {}, 0
  for at, queue in ipairs(queues) do
    local all = not brief[queue]
    for each = first[at], first[at + 1] - 1 do
      if all or tonumber(versions[each] or 0) > VERSION then
        number = number + 1
        wanted[number], places[number] = keys[each], each
      else
        found[each] = '0'
      end
    end
  end
  for at, entry in ipairs(values('torchq:entries', wanted)) do
    found[places[at]] = entry
  end
  return found
end

local entries = said()

local function text(value)
  return value and '"' .. value .. '"' or 'null'
end

local function view(at, queue)
  local parts = {
    '[', WHOLE and settings[at] or quoted(queue), ',', text(accounts[at]), ',', overtaken[at] or 'null', ',',
    usage[at] or '{}', ',', waiting[at], ',', after[queue] or 0, ',[',
  }
  local count = #parts
  for each = first[at], first[at + 1] - 1 do
    parts[count + 1] = versions[each] or 'null'
    parts[count + 2] = ','
    parts[count + 3] = entries[each] or 'null'
    parts[count + 4] = ','
    count = count + 4
  end
  if first[at] < first[at + 1] then
    parts[count] = ''
  end
  parts[count + 1] = ']]'
  return table.concat(parts)
end

local answer = { table.concat({
  '{"epoch":' .. numbers[1],
  '"revision":' .. (numbers[2] or '0'),
  '"version":' .. (numbers[5] or '0'),
  '"change":' .. numbers[3],
  '"whole":' .. tostring(WHOLE),
  '"clock":' .. text(redis.call('GET', 'torchq:clock')),
  '"usage":' .. (redis.call('HGET', 'torchq:usage', '') or '{}'),
  '"pool":' .. (WHOLE and redis.call('GET', 'torchq:pool') or 'null') .. '}',
}, ',') }
for at, queue in ipairs(queues) do
  if settings[at] then
    answer[#answer + 1] = view(at, queue)
  end
end
return answer
