-- Take picks, one by one and in order, until one is refused. What is needed is read for all picks at once, and what they
-- change is written for all at once.
--
-- ARGV: 1 epoch   2 revision   3 id of this commit   4 id of the commit that must have been the last one and stand whole (empty:
--         any)   5 now (seconds since 1970; empty: the server's time)   6 first port   7 last port (both 0: no ports)
--       8 the last change the chooser knew of; if it follows another commit, the one that this was counts
--       9 JSON of the picks, column by column:
--           keys                               of each pick: the job key
--           versions                           of each pick: the version of its entry, and a comma
--           queues, queue                      names, and which of them (from 1) each pick's is
--           demands, attempts, demand          JSON texts of amounts, each with a number of attempt; and which of them each pick's are
--           grows                              picks (from 1) whose kind is "grow"; all others' is "admit"
--           ports                              picks for which a port is to be held
--           clock                              after all picks; empty: there is no pick, and the clock does not change
--           accounts, overtaken                flat lists of queue, text: what all picks together change, and what changes
--                                              without a pick; written if no pick is refused, also where there is none. An
--                                              account without a weight is the empty text, and is not kept
--       10 JSON of what is needed only if one is refused:
--           clocks                             after each pick
--           accounts, overtaken                lists of {pick, queue, text}: what each changes, in their order
--       11 how many entries to show of queues that follow, each with the number of its first entries to leave out once all
--          picks are taken
-- Keys and preludes: lib/store.lua, lib/heads.lua, lib/usage.lua, lib/limits.lua, lib/records.lua, lib/mark.lua, lib/mark_many.lua, lib/clock.lua
-- Returns: a list of: what refused the first refused pick ("" if none was), number of picks taken, number given to the first
-- pick of kind "admit", number of the last change, "1" if nothing else had changed else "0", the names of queues that others
-- had changed; then, if there is any port or a pick that grew, per pick taken: its port, "" if it has none, or, if it grew,
-- its JSON reservation. Names and what is said of picks are joined by line feeds. If no pick was refused and there are queues
-- to show there follow, as JSON joined by commas, lists: the queue's name, how many entries are left out, how many wait, flat
-- list of version, tie-break and entry.
-- The same id again returns the first answer, but for the queues to show: the client repeats a commit whose answer was lost,
-- even if others that follow it were done since; so many answers are kept.
-- Errors STORELOST, STALEEPOCH.

local EPOCH, REVISION, ID, FOLLOWS, NOW = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local FIRST_PORT, LAST_PORT = tonumber(ARGV[6]), tonumber(ARGV[7])
local KEPT_ANSWERS = 8 -- at least as many as may be on their way (rounds.py)

local refused = refusal(EPOCH)
if refused then
  return refused
end
local last = redis.call('HMGET', 'torchq:commit', ID, 'ids', 'whole', 'change')
if last[1] then
  return cjson.decode(last[1])
end
local ids = {}
for id in string.gmatch(last[2] or '', '%S+') do
  ids[#ids + 1] = id
end
if FOLLOWS ~= '' and not (ids[1] == FOLLOWS and last[3] == '1') then
  return { 'predecessor', '0', '0', redis.call('GET', 'torchq:change'), '0', '', '' }
end
local KNOWN = FOLLOWS == '' and ARGV[8] or last[4]

local picks = cjson.decode(ARGV[9])
local keys, queue_of, demand_of = picks.keys, picks.queue, picks.demand
local entries, held = values('torchq:entries', keys), values('torchq:reservations', keys)

local function set_of(list)
  local found = {}
  for _, each in ipairs(list) do
    found[each] = true
  end
  return found
end

local grows, asks, gone = set_of(picks.grows), set_of(picks.ports), {}

-- What picks ask for, each with what the reservations have in common that are made for it.
local FURTHER = 65536 -- than there are picks
local demands, pool = {}, nil
local function read_demands()
  local limits = read_limits()
  pool = limits and cjson.decode(limits) -- what all queues share; nil if nothing is scarce
  for at, text in ipairs(picks.demands) do
    local amounts, names, sizes = cjson.decode(text), {}, {}
    for name, amount in pairs(amounts) do
      names[#names + 1], sizes[#sizes + 1] = name, amount
    end
    demands[at] = {
      number = at * FURTHER,
      amounts = amounts,
      counted = counting(amounts),
      names = names,
      sizes = sizes,
      text = text,
      attempt = whole(picks.attempts[at]),
      taken = 0,
      head = '{"attempt":' .. whole(picks.attempts[at]) .. ',"charge":' .. text .. ',"epoch":' .. EPOCH
        .. ',"kind":"admit","pick":',
    }
  end
end

local owns = {}
local function read_books()
  table.insert(picks.queues, ALL)
  open_books(picks.queues)
  for at, queue in ipairs(picks.queues) do
    local own = books[queue]
    if own.limited then
      used_of(own)
    end
    owns[at] = own
  end
end

-- The first free port after the one given last: 0 if none are given, nil if all are taken.
local last_port
local given = {}
local function next_port()
  if FIRST_PORT == 0 then
    return 0
  end
  last_port = last_port or tonumber(redis.call('GET', 'torchq:port') or 0)
  local size = LAST_PORT - FIRST_PORT + 1
  local start = (last_port < FIRST_PORT or last_port >= LAST_PORT) and 0 or last_port - FIRST_PORT + 1
  for step = 0, size - 1 do
    local port = FIRST_PORT + (start + step) % size
    if not given[port] and redis.call('HEXISTS', 'torchq:ports', whole(port)) == 0 then
      return port
    end
  end
  return nil
end

local reservations, ports, answers, groups = {}, {}, {}, {}
local number, first_number = nil, nil

local function grow(at, demand)
  local was = cjson.decode(held[at])
  charge(was.queue, demand.amounts, 1)
  for name, amount in pairs(demand.amounts) do
    was.charge[name] = (was.charge[name] or 0) + amount
  end
  answers[at] = reservation_text(
    whole(was.attempt), amounts_text(was.charge), whole(was.epoch), was.kind, whole(was.pick), whole(was.port), was.queue
  )
  return answers[at]
end

local function hold_port(at, port)
  answers[at] = whole(port)
  last_port, given[port] = port, true
  ports[#ports + 1] = answers[at]
  ports[#ports + 1] = keys[at]
end

local function admit(at, own, demand, port)
  number = (number or tonumber(redis.call('GET', 'torchq:pick') or 0)) + 1
  first_number = first_number or number
  charge_alike(own, demand, 1)
  charge_cohort(own, demand.counted, 1)
  if pool then
    charge_alike(books[ALL], demand, 1)
  else
    demand.taken = demand.taken + 1
  end
  if port > 0 then
    hold_port(at, port)
    return reservation_text(demand.attempt, demand.text, EPOCH, 'admit', whole(number), answers[at], own.queue)
  end
  return demand.head .. number .. ',"port":0,"queue":' .. quoted(own.queue) .. '}'
end

-- The picks of each queue together, in its book.
local function take(at, own, tie)
  local others, key = own.keys, keys[at]
  local where = place(tie, key)
  if others then
    local count = #others + 1
    others[count], own.places[count] = key, where
  else
    own.keys, own.places = { key }, { where }
    groups[#groups + 1] = own
    touched[own.queue] = true
  end
end

-- Take the picks one by one. What refused the first that was refused, and how many stand.
local function take_all()
  local versions, find, sub = picks.versions, string.find, string.sub
  for at = 1, #keys do
    local key, entry, own, demand, port = keys[at], entries[at], owns[queue_of[at]], demands[demand_of[at]], 0
    local first, last -- of the version, which the tie-break in quotation marks follows
    if entry and not gone[key] then
      first, last = find(entry, versions[at], 1, true)
    end
    if first ~= 1 then
      return 'entry', at - 1
    end
    local grown = grows[at] or false
    if grown ~= (held[at] ~= false) then
      return 'reservation', at - 1
    end
    local over = own.limited and over_limits(own, demand) or pool and over_pool(pool, demand)
    if over then
      return over, at - 1
    end
    if asks[at] then
      port = next_port()
    end
    if not (port or grown) then
      return 'port', at - 1
    end
    take(at, own, sub(entry, last + 2, find(entry, '"', last + 2, true) - 1))
    gone[key] = true
    reservations[2 * at - 1], reservations[2 * at] = key, grown and grow(at, demand) or admit(at, own, demand, port)
  end
  return '', #keys
end

-- The last word on each queue in what the first picks changed.
local function last_words(changes, count)
  local last, flat = {}, {}
  for _, each in ipairs(changes) do
    if each[1] <= count then
      last[each[2]] = each[3]
    end
  end
  for queue, text in pairs(last) do
    flat[#flat + 1] = queue
    flat[#flat + 1] = text
  end
  return flat
end

-- An empty text is not kept.
local function keep(hash, changes)
  local kept, lost = {}, {}
  for at = 1, #changes, 2 do
    touched[changes[at]] = true
    if changes[at + 1] == '' then
      lost[#lost + 1] = changes[at]
    else
      kept[#kept + 1], kept[#kept + 2] = changes[at], changes[at + 1]
    end
  end
  write('HSET', hash, kept)
  write('HDEL', hash, lost)
end

local function keep_turns(count)
  local clock, accounts, overtaken = picks.clock, picks.accounts, picks.overtaken
  if count < #keys then
    local each = cjson.decode(ARGV[10])
    clock = each.clocks[count]
    accounts, overtaken = last_words(each.accounts, count), last_words(each.overtaken, count)
  end
  if clock ~= '' then
    redis.call('SET', 'torchq:clock', clock)
  end
  keep('torchq:accounts', accounts)
  keep('torchq:overtaken', overtaken)
end

local function save(count)
  for at = count + 1, #keys do
    keys[at] = nil
  end
  for _, demand in ipairs(demands) do
    if demand.taken > 0 then
      charge_alike(books[ALL], demand, demand.taken)
    end
  end
  write('HDEL', 'torchq:entries', keys)
  for _, group in ipairs(groups) do
    write('ZREM', 'torchq:order:' .. group.queue, group.places)
  end
  write('HSET', 'torchq:reservations', reservations)
  write('HSET', 'torchq:ports', ports)
  if last_port then
    redis.call('SET', 'torchq:port', whole(last_port))
  end
  if number then
    redis.call('SET', 'torchq:pick', whole(number))
  end
  save_books()
  mark_many(keys, groups, seconds(clock(NOW)))
end

-- Who else has changed something since the chooser looked: nil if nobody knows any more.
local function others()
  if tonumber(KNOWN) < tonumber(redis.call('GET', 'torchq:settled')) then
    return nil
  end
  return redis.call('ZRANGEBYSCORE', 'torchq:changed', '(' .. KNOWN, '+inf')
end

-- What is said of the picks that stand, if there is anything to say.
local function decided(count)
  if next(answers) == nil then
    return ''
  end
  for at = 1, count do
    answers[at] = answers[at] or ''
  end
  return table.concat(answers, '\n', 1, count)
end

-- The queues to show, as parts of the answer.
local function show(answer)
  local named, skipped, parts = {}, {}, {}
  for at = 12, #ARGV, 2 do
    named[#named + 1] = ARGV[at]
    skipped[ARGV[at]] = tonumber(ARGV[at + 1])
  end
  local line, count = line_up(named, skipped, tonumber(ARGV[11])), 0
  for at, queue in ipairs(named) do
    parts[count + 1], parts[count + 2], parts[count + 3] = count == 0 and '[' or ',[', quoted(queue), ','
    parts[count + 4], parts[count + 5], parts[count + 6] = skipped[queue], ',', line.waiting[at]
    parts[count + 7] = ',['
    count = entries_of(line, at, parts, count + 7) + 1
    parts[count] = ']]'
    count = joined(answer, parts, count, at == #named and 1 or TOGETHER)
  end
end

local function remember(answer)
  if #ids == KEPT_ANSWERS then
    redis.call('HDEL', 'torchq:commit', table.remove(ids))
  end
  table.insert(ids, 1, ID)
  redis.call('HSET', 'torchq:commit', ID, cjson.encode(answer), 'ids', table.concat(ids, ' '), 'whole',
    answer[1] == '' and '1' or '', 'change', answer[4])
end

local function commit()
  if redis.call('GET', 'torchq:revision') ~= REVISION then
    return 'revision', 0
  end
  read_demands()
  read_books()
  return take_all()
end

local change = redis.call('GET', 'torchq:change')
local alone, changed = tonumber(change) == tonumber(KNOWN), others() or {}
local why, count = commit()
if count > 0 or why == '' then
  keep_turns(count)
end
if count > 0 then
  save(count)
end
local number_of_change = tell_changes()
change = number_of_change and whole(number_of_change) or change
local answer = {
  why, whole(count), whole(first_number or 0), change, alone and '1' or '0', table.concat(changed, '\n'), decided(count),
}
remember(answer)
if why == '' then
  show(answer)
end
return answer
