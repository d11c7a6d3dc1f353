-- Prelude: what the store's scripts share. It takes no KEYS or ARGV of its own.
--
-- Keys (of all store_*.lua scripts). JSON is made by queues/redis/codec.py; a script that makes any writes it the same way.
--   torchq:epoch              string  epoch of the last rebuild; missing: the store is lost, only a rebuild helps
--   torchq:layout             string  number of this layout of keys; under another one the store is lost, too
--   torchq:rebuilding         string  epoch of a rebuild under way; torchq:epoch is missing meanwhile
--   torchq:revision           string  rises with every change of settings
--   torchq:queues             hash    queue -> JSON settings {name, weight, open, quota, cohort, borrowing, strict, aging_seconds}
--   torchq:rules              hash    queue -> its cohort, a space, and JSON of what else scripts go by {quota, borrowing,
--                                     aging_seconds}; queues that are alike have one JSON text, which is read once
--   torchq:pool               string  JSON {resource: amount}, under "*" that of every other resource but jobs; missing: nothing is
--                                     scarce
--   torchq:entries            hash    job key -> version of the entry, a comma, its tie-break as JSON, a comma, JSON entry {key,
--                                     queue, submitted, priority, attempt, demand, kind (missing: "admit"), returning (missing:
--                                     false), port (missing: false)}. The tie-break is text without quotation marks
--                                     (queues/order.py); it stays while the job waits
--   torchq:version            string  version given last
--   torchq:order:<queue>      zset    place -> score; of equal scores the smaller place goes first. The place is the tie-break, the
--                                     job key, a space, and how long the tie-break is in three digits
--   torchq:reservations       hash    job key -> JSON {attempt, charge, epoch, kind, pick, port, queue}
--   torchq:counted            string  JSON list of the resources that torchq:usage counts (queues/limits.py); missing: all
--   torchq:usage              hash    queue -> JSON {resource: sum over its reservations} of the resources that count, under "" the
--                                     sum over all queues; a sum of 0 is left out
--   torchq:cohorts            hash    cohort -> JSON {resource: sum of its members' quotas}
--   torchq:shared             hash    cohort -> JSON {resource: sum of what the members that limit it use}
--   torchq:ports              hash    port -> key of the job that holds it
--   torchq:port               string  port given last
--   torchq:pick               string  number of the pick taken last
--   torchq:accounts           hash    queue -> account, as codec.py writes it, of queues that count, also of some that are not
--                                     configured any more; never read by scripts
--   torchq:clock              string  clock, as codec.py writes it; never read by scripts
--   torchq:overtaken          hash    queue -> JSON {kept, key, since, times} or null, kept: {resource: amount} or missing; never
--                                     read by scripts
--   torchq:change             string  number of the last change; a rebuild begins with its epoch * 2^32, so that no number comes
--                                     twice
--   torchq:changed            zset    queue -> number of its last change; every queue that may have an order key
--   torchq:settled            string  number of the last change that a difference cannot tell: of settings, or a rebuild
--   torchq:commit             hash    ids: those of the last few commits, the last one first; under each id what it answered; of the
--                                     last one whole: "1" if all its picks stand, and change: the number of the last change then
-- Numbers, sums too, are whole and below 2^53, which Lua holds exactly; they are written with whole(), never with tostring.

local LAYOUT = '7'
local BOOST_LIMIT = 604800
local RETURNING = 4 * BOOST_LIMIT
local DEFAULT_AGING = 600
local CHANGES_PER_EPOCH = 4294967296
local MANY = 4000 -- most arguments given to one call: Lua's stack holds 8,000

local function whole(number)
  return string.format('%.0f', number + 0) -- without the sum, -0 is written with its sign
end

-- The reply that refuses a script's work under `epoch` (0: under whatever epoch there is), or nil.
local function refusal(epoch)
  local found = redis.call('MGET', 'torchq:epoch', 'torchq:layout')
  local known = found[2] == LAYOUT and tonumber(found[1])
  local ours = tonumber(epoch)
  if not known then
    return redis.error_reply('STORELOST no epoch: the queues must be rebuilt first')
  elseif ours > known then
    return redis.error_reply('STORELOST the queues went back to epoch ' .. whole(known) .. ' and must be rebuilt')
  elseif ours > 0 and ours < known then
    return redis.error_reply('STALEEPOCH epoch ' .. epoch .. ' is over: the queues are at ' .. whole(known))
  end
  return nil
end

-- The same for what a rebuild does, too, before it opens the store.
local function refusal_while_open_or_rebuilding(epoch)
  if redis.call('GET', 'torchq:rebuilding') == epoch then
    return nil
  end
  return refusal(epoch)
end

-- The values of many fields of a hash, false for those that are missing.
local function values(hash, fields)
  if #fields == 0 then
    return {}
  end
  local found = redis.call('HMGET', hash, unpack(fields, 1, math.min(MANY, #fields)))
  for from = MANY + 1, #fields, MANY do
    local some = redis.call('HMGET', hash, unpack(fields, from, math.min(from + MANY - 1, #fields)))
    for at = 1, #some do
      found[from + at - 1] = some[at]
    end
  end
  return found
end

-- A writing command with many arguments; none is no call. The answer to the last one.
local function write(command, key, arguments)
  if #arguments == 1 then
    return redis.call(command, key, arguments[1])
  end
  local answer
  for from = 1, #arguments, MANY do
    answer = redis.call(command, key, unpack(arguments, from, math.min(from + MANY - 1, #arguments)))
  end
  return answer
end

-- The list under a name in a table of lists.
local function list(lists, name)
  local found = lists[name]
  if not found then
    found = {}
    lists[name] = found
  end
  return found
end

-- Decodes equal texts once.
local decoded = {}
local function decode(text)
  local found = decoded[text]
  if not found then
    found = cjson.decode(text)
    decoded[text] = found
  end
  return found
end

-- The tie-break in the text of an entry. No pattern: it would look at each letter.
local find, sub, byte = string.find, string.sub, string.byte
local function tie_of(text)
  local first = find(text, '"', 1, true) + 1
  return sub(text, first, find(text, '"', first, true) - 1)
end

-- The JSON of an entry.
local function content(text)
  return sub(text, find(text, '"', find(text, '"', 1, true) + 1, true) + 2)
end

-- The place of a job. There are few lengths.
local suffixes = {}
local function place(tie, key)
  local length = #tie
  local suffix = suffixes[length]
  if not suffix then
    suffix = string.format(' %03d', length)
    suffixes[length] = suffix
  end
  return tie .. key .. suffix
end

-- The job key in a place. What is no place may give anything.
local ZEROS = 111 * string.byte('0')
local function key_of(place)
  local hundreds, tens, ones = byte(place, -3, -1)
  return ones and sub(place, 100 * hundreds + 10 * tens + ones - ZEROS + 1, -5) or ''
end

-- The cohort and the other rules in the rules' text; none is of a queue that is not configured.
local NO_RULES = { quota = {}, borrowing = {}, aging_seconds = DEFAULT_AGING }
local function rules_of(text)
  if not text then
    return '', NO_RULES
  end
  local space = string.find(text, ' ', 1, true)
  return string.sub(text, 1, space - 1), decode(string.sub(text, space + 1))
end

-- queues/order.py says what it means.
local function score(entry, aging)
  local boost = math.max(-BOOST_LIMIT, math.min(entry.priority * aging, BOOST_LIMIT))
  return string.format('%.17g', entry.submitted - boost - (entry.returning and RETURNING or 0))
end

-- A name as JSON; most names need nothing but quotation marks. cjson writes "\/" for "/".
local quoted_names = {}
local function quoted(name)
  local found = quoted_names[name]
  if not found then
    found = string.find(name, '[^%w%-./_]') and string.gsub(cjson.encode(name), '\\/', '/') or '"' .. name .. '"'
    quoted_names[name] = found
  end
  return found
end

-- Amounts as JSON, the names sorted. Lua itself writes numbers to 14 digits.
local SHORT = 1e14
local function amounts_text(amounts)
  local names, parts, count = {}, {}, 0
  for name in pairs(amounts) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local amount = amounts[name]
    parts[count + 1] = count == 0 and '{' or ','
    parts[count + 2] = quoted(name)
    parts[count + 3] = ':'
    parts[count + 4] = amount > -SHORT and amount < SHORT and amount + 0 or whole(amount)
    count = count + 4
  end
  return count == 0 and '{}' or table.concat(parts) .. '}'
end

-- Queues whose entries, usage or account this script changes.
local touched = {}

-- Number this script's change, if it was one, and say which queues it concerns. The number, or nil.
local function tell_changes()
  if next(touched) == nil then
    return nil
  end
  local scores, number = {}, redis.call('INCR', 'torchq:change')
  local score = whole(number)
  for queue in pairs(touched) do
    scores[#scores + 1] = score
    scores[#scores + 1] = queue
  end
  write('ZADD', 'torchq:changed', scores)
  return number
end
