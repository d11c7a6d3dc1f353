-- Read the state from which picks are chosen, or its changes since an earlier snapshot, at one moment. Changes nothing.
--
-- ARGV: 1 epoch (0: any)   2 number of heads of each queue   3 the change that the caller knows already (empty: none)
--       4 version: of a queue that changed, entries up to this version are omitted but for their versions (empty: none is
--         omitted)
--       5 number of queues to return in any case; then their names; then the queues to return if they have not changed, each
--         with the number of its first entries to leave out
-- Keys and preludes: lib/store.lua, lib/heads.lua
-- Returns: JSON text {epoch, revision, version (the last one), change, whole, clock, usage (of the pool), if whole: pool and
-- departed (queue -> account, of queues that are not configured)}; then per queue a list, the lists of several queues joined by
-- commas: settings (if not whole: the name), account, overtaken, usage, number of waiting entries, number of entries left out,
-- flat list of version, tie-break and entry of the next ones. A missing value is null. An omitted entry and its tie-break are
-- 0. Clock and accounts are strings.
-- Errors STORELOST, STALEEPOCH.

local refused = refusal(ARGV[1])
if refused then
  return refused
end
local HEADS, SINCE, VERSION, NAMED = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local numbers = redis.call('MGET', 'torchq:epoch', 'torchq:revision', 'torchq:change', 'torchq:settled', 'torchq:version')
local CHANGE = tonumber(numbers[3])
local WHOLE = not (SINCE and SINCE >= tonumber(numbers[4]) and SINCE <= CHANGE)

-- Return the names of the queues to return, the queues whose known entries are omitted, and the numbers of entries to leave
-- out.
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
local line = line_up(queues, after, HEADS)

-- Add the entries of a queue whose old entries are omitted.
local function shorten(at)
  for index = line.first[at], line.first[at + 1] - 1 do
    local version = string.match(line.texts[index], '^%d+')
    if version and tonumber(version) <= VERSION then
      line.texts[index] = version .. ',0,0'
    end
  end
end

local function text(value)
  return value and '"' .. value .. '"' or 'null'
end

-- Return the accounts of queues that are not configured, as JSON.
local function departed()
  local count, parts = 0, {}
  for at = 1, #queues do
    count = count + (accounts[at] and 1 or 0)
  end
  if not WHOLE or redis.call('HLEN', 'torchq:accounts') == count then
    return '{}'
  end
  local configured = {}
  for _, queue in ipairs(queues) do
    configured[queue] = true
  end
  local all = redis.call('HGETALL', 'torchq:accounts')
  for at = 1, #all, 2 do
    if not configured[all[at]] then
      parts[#parts + 1] = quoted(all[at]) .. ':' .. text(all[at + 1])
    end
  end
  return '{' .. table.concat(parts, ',') .. '}'
end

local parts, size = {}, 0
local function view(at, queue)
  if brief[queue] then
    shorten(at)
  end
  for _, part in ipairs({
    size == 0 and '[' or ',[', WHOLE and settings[at] or quoted(queue), ',', text(accounts[at]), ',', overtaken[at] or 'null',
    ',', usage[at] or '{}', ',', line.waiting[at], ',', after[queue] or 0, ',[',
  }) do
    size = size + 1
    parts[size] = part
  end
  size = entries_of(line, at, parts, size) + 1
  parts[size] = ']]'
end

local answer = { table.concat({
  '{"epoch":' .. numbers[1],
  '"revision":' .. (numbers[2] or '0'),
  '"version":' .. (numbers[5] or '0'),
  '"change":' .. numbers[3],
  '"whole":' .. tostring(WHOLE),
  '"clock":' .. text(redis.call('GET', 'torchq:clock')),
  '"departed":' .. departed(),
  '"usage":' .. (redis.call('HGET', 'torchq:usage', '') or '{}'),
  '"pool":' .. (WHOLE and redis.call('GET', 'torchq:pool') or 'null') .. '}',
}, ',') }
for at, queue in ipairs(queues) do
  if settings[at] then
    view(at, queue)
  end
  size = joined(answer, parts, size, at == #queues and 1 or TOGETHER)
end
return answer
