-- Add waiting jobs, or change how they wait.
--
-- ARGV: epoch (0: any), then per entry: job key, its tie-break as JSON, its JSON text; no key twice
-- Keys and preludes: lib/store.lua
-- Returns: number of entries that changed. Errors STORELOST, STALEEPOCH.
-- An entry of kind "grow" counts only for a job that holds a reservation in the same queue with the same number of growths, and
-- with the idle workers that it pays for; another kind only for a job that holds none. A job that waits already keeps its first
-- tie-break.

local refused = refusal_while_open_or_rebuilding(ARGV[1])
if refused then
  return refused
end

local keys, leaving, added, entries = {}, {}, {}, {}
for at = 2, #ARGV, 3 do
  keys[#keys + 1] = ARGV[at]
end
local reserved, stored = values('torchq:reservations', keys), values('torchq:entries', keys)

local function leave(place, text)
  local queue = cjson.decode(text).queue
  touched[queue] = true
  table.insert(list(leaving, queue), place)
end

-- The score of a job needs the rules of its queue, so the rules of all queues are read at once.
local function put(key, tie, text, entry)
  touched[entry.queue] = true
  entries[#entries + 1] = key
  entries[#entries + 1] = ',"' .. tie .. '",' .. text -- its version is added below
  entry.place = place(tie, key)
  table.insert(list(added, entry.queue), entry)
end

local function counts(entry, reservation_text)
  if entry.kind ~= 'grow' then
    return not reservation_text
  end
  return may_grow(reservation_text and cjson.decode(reservation_text), entry)
end

local function scores(waiting, aging)
  local flat = {}
  for _, entry in ipairs(waiting) do
    flat[#flat + 1] = score(entry, aging)
    flat[#flat + 1] = entry.place
  end
  return flat
end

for at = 1, #keys do
  local text, before = ARGV[3 * at + 1], stored[at] and content(stored[at])
  if before ~= text then
    local entry = cjson.decode(text)
    if counts(entry, reserved[at]) then
      local tie = tie_of(stored[at] or ARGV[3 * at])
      if before then
        leave(place(tie, keys[at]), before)
      end
      put(keys[at], tie, text, entry)
    end
  end
end
for queue, places in pairs(leaving) do
  write('ZREM', 'torchq:order:' .. queue, places)
end
local queues = {}
for queue in pairs(added) do
  queues[#queues + 1] = queue
end
for at, text in ipairs(values('torchq:rules', queues)) do
  local _, rules = rules_of(text)
  write('ZADD', 'torchq:order:' .. queues[at], scores(added[queues[at]], rules.aging_seconds))
end
local first = redis.call('INCRBY', 'torchq:version', #entries / 2) - #entries / 2
for at = 2, #entries, 2 do
  entries[at] = whole(first + at / 2) .. entries[at]
end
write('HSET', 'torchq:entries', entries)
number_change()
return #entries / 2
