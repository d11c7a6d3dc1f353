-- Prelude: the functions that the store's scripts share. It takes no KEYS or ARGV of its own.
--
-- Keys (of all scripts in lua/store). queues/redis/codec.py writes the JSON; scripts write JSON in the same form.
--   torchq:epoch              string  epoch of the last rebuild; missing: the store is lost, and only a rebuild helps
--   torchq:layout             string  number of this layout of keys; with another number the store is lost, too
--   torchq:owner              string  JSON {cluster, lease_namespace}: the installation whose store this is; missing: whose rebuild
--                                     begins first
--   torchq:rebuilding         string  epoch of a rebuild under way; torchq:epoch is missing meanwhile
--   torchq:revision           string  rises with every change of settings
--   torchq:queues             hash    queue -> JSON settings {name, weight, open, quota, cohort, borrowing, strict, aging_seconds}
--   torchq:rules              hash    queue -> its cohort, a space, and JSON of the other settings that scripts read {quota, borrowing,
--                                     aging_seconds}; queues with equal settings have one JSON text, which is decoded once
--   torchq:pool               string  JSON {resource: amount}; "*" stands for every other resource but jobs and claimed devices; missing: the pool is
--                                     unlimited
--   torchq:entries            hash    job key -> version of the entry, a comma, its tie-break as JSON, a comma, JSON entry {key,
--                                     queue, submitted, priority, attempt, demand, kind (missing: "admit"), returning (missing:
--                                     false), port (missing: false), size (missing: 0), unit (missing: {}), most (missing: 0), step
--                                     (missing: 1), grown (missing: 0), idle (missing: 0)}. The tie-break is text without quotation marks
--                                     (queues/order.py); it stays while the job waits. An entry of kind "grow" has a reservation
--                                     in its queue with the same number in grown, and at least as much in idle
--   torchq:version            string  last version of an entry
--   torchq:order:<queue>      zset    place -> score; of equal scores the smaller place goes first. The place is the tie-break, the
--                                     job key, a space, and how long the tie-break is in three digits
--   torchq:reservations       hash    job key -> JSON {attempt, charge, epoch, gained (missing: 0), grown (missing: 0), idle (missing: 0),
--                                     kind, nodes (missing: ""), paid (missing: 0), pick, port, queue, size (missing: 0)}
--   torchq:counted            string  JSON list of the resources that torchq:usage counts (queues/limits.py); missing: all
--   torchq:usage              hash    queue -> JSON {resource: sum over its reservations} of the counted resources; the queue "" stands for
--                                     all queues; a sum of 0 is left out
--   torchq:cohorts            hash    cohort -> JSON {resource: sum of its members' quotas}
--   torchq:shared             hash    cohort -> JSON {resource: sum of what the members that limit it use}
--   torchq:ports              hash    port -> key of the job that holds it
--   torchq:port               string  last port of an admitted job
--   torchq:pick               string  number of the last pick
--   torchq:accounts           hash    queue -> account, as codec.py writes it, of queues with a weight, also of some that are not
--                                     configured any more; scripts never read it
--   torchq:clock              string  clock, as codec.py writes it; scripts never read it
--   torchq:overtaken          hash    queue -> JSON {claimed, impatient, late (missing: false), collected_until, kept_since,
--                                     uncollected, vain (missing: 0), kept, key, paid, since, times} or null, kept: {resource:
--                                     amount} or missing, and paid with it; scripts never read it
--   torchq:change             string  number of the last change; a rebuild begins with its epoch * 2^32, so that no number is used
--                                     twice
--   torchq:changed            zset    queue -> number of its last change; every queue that may have an order key
--   torchq:settled            string  number of the last change that a difference cannot show: of settings, or a rebuild
--   torchq:commit             hash    ids: the ids of the last few commits, the last one first; each id: the answer of that commit;
--                                     whole: "1" if all picks of the last commit stand; change: the last change at its end;
--                                     idle: id and answer of the last growth of idle workers
-- All numbers and sums are integers below 2^53, which Lua holds exactly. Scripts write them with whole(), never with tostring.

local LAYOUT = '12'
local BOOST_LIMIT = 604800
local RETURNING = 4 * BOOST_LIMIT
local DEFAULT_AGING = 600
local CHANGES_PER_EPOCH = 4294967296
local MANY = 4000 -- the most arguments of one call: Lua's stack holds 8,000

local function whole(number)
  return string.format('%.0f', number + 0) -- without the sum, -0 is written with its sign
end

-- Return the error reply for a caller that works under `epoch` (0: any epoch), or nil if it may go on.
local function refusal(epoch)
  local answers = redis.call('MGET', 'torchq:epoch', 'torchq:layout')
  local current = answers[2] == LAYOUT and tonumber(answers[1])
  local own_epoch = tonumber(epoch)
  if not current then
    return redis.error_reply('STORELOST no epoch: the queues must be rebuilt first')
  elseif own_epoch > current then
    return redis.error_reply('STORELOST the queues went back to epoch ' .. whole(current) .. ' and must be rebuilt')
  elseif own_epoch > 0 and own_epoch < current then
    return redis.error_reply('STALEEPOCH epoch ' .. epoch .. ' is over: the queues are at ' .. whole(current))
  end
  return nil
end

-- Return the error reply for a script that a rebuild runs, too, before it opens the store; or nil.
local function refusal_while_open_or_rebuilding(epoch)
  if redis.call('GET', 'torchq:rebuilding') == epoch then
    return nil
  end
  return refusal(epoch)
end

-- Return the values of many fields of a hash, false for missing fields.
local function values(hash, fields)
  if #fields == 0 then
    return {}
  end
  local results = redis.call('HMGET', hash, unpack(fields, 1, math.min(MANY, #fields)))
  for from = MANY + 1, #fields, MANY do
    local part = redis.call('HMGET', hash, unpack(fields, from, math.min(from + MANY - 1, #fields)))
    for at = 1, #part do
      results[from + at - 1] = part[at]
    end
  end
  return results
end

-- Call a writing command with many arguments, in several calls if needed, and none if there are no arguments. Return the last
-- answer.
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

-- Return the list under a name in a table of lists; add an empty one if it is missing.
local function list(lists, name)
  local result = lists[name]
  if not result then
    result = {}
    lists[name] = result
  end
  return result
end

-- Decode JSON. Equal texts are decoded once.
local decoded = {}
local function decode(text)
  local value = decoded[text]
  if not value then
    value = cjson.decode(text)
    decoded[text] = value
  end
  return value
end

-- Return the tie-break in the text of an entry. A plain search is faster than a pattern.
local find, sub, byte = string.find, string.sub, string.byte
local function tie_of(text)
  local first = find(text, '"', 1, true) + 1
  return sub(text, first, find(text, '"', first, true) - 1)
end

-- Return the JSON in the text of an entry.
local function content(text)
  return sub(text, find(text, '"', find(text, '"', 1, true) + 1, true) + 2)
end

-- Return the place of a job. The suffixes are cached, because there are few lengths.
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

-- Return the job key in a place. For another text, the result is undefined.
local ZEROS = 111 * string.byte('0')
local function key_of(place)
  local hundreds, tens, ones = byte(place, -3, -1)
  return ones and sub(place, 100 * hundreds + 10 * tens + ones - ZEROS + 1, -5) or ''
end

-- Return the cohort and the other rules in the text of a queue's rules. No text: the queue is not configured.
local NO_RULES = { quota = {}, borrowing = {}, aging_seconds = DEFAULT_AGING }
local function rules_of(text)
  if not text then
    return '', NO_RULES
  end
  local space = string.find(text, ' ', 1, true)
  return string.sub(text, 1, space - 1), decode(string.sub(text, space + 1))
end

-- Return whether an entry of kind "grow" counts: its job holds this reservation, decoded, in the entry's queue, with the same
-- number of growths, and with the idle workers that the entry pays for.
local function may_grow(reservation, entry)
  return reservation and reservation.queue == entry.queue and (reservation.grown or 0) == (entry.grown or 0)
    and (reservation.idle or 0) >= (entry.idle or 0)
end

-- Return the score of an entry; see queues/order.py.
local function score(entry, aging)
  local boost = math.max(-BOOST_LIMIT, math.min(entry.priority * aging, BOOST_LIMIT))
  return string.format('%.17g', entry.submitted - boost - (entry.returning and RETURNING or 0))
end

-- Return a name as JSON. Most names only need quotation marks. cjson writes "\/" for "/".
local quoted_names = {}
local function quoted(name)
  local text = quoted_names[name]
  if not text then
    text = string.find(name, '[^%w%-./_]') and string.gsub(cjson.encode(name), '\\/', '/') or '"' .. name .. '"'
    quoted_names[name] = text
  end
  return text
end

-- Return amounts as JSON with sorted names. Lua writes numbers with only 14 digits.
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

-- The queues whose entries, usage or account this script changes.
local touched = {}

-- Give this script's change a number, and record the changed queues. Return the number, or nil without a change.
local function number_change()
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
