-- Take picks, one by one and in order, until one is refused. The script reads the data of all picks at once, and writes all
-- changes at once.
--
-- ARGV: 1 epoch   2 revision   3 id of this commit   4 id of the commit that must be the last one and stand whole (empty:
--         any)   5 now (seconds since 1970; empty: the server's time)   6 first port   7 last port (both 0: no ports)
--       8 the last change that the picker knew; if the batch follows another commit, that commit's change counts instead
--       9 JSON of the picks, column by column:
--           keys                               of each pick: the job key
--           versions                           of each pick: the version of its entry, and a comma
--           queues, queue                      names; and of each pick: the number (from 1) of its queue
--           demands, attempts, costs, demand   JSON texts of amounts, their attempts and costs; and of each pick: the number of
--                                              its triple
--           grows                              numbers of the picks (from 1) of kind "grow"; the others are of kind "admit"
--           ports                              numbers of the picks that need a port
--           sizes                              flat list of the number of a pick and the number of workers that its demand
--                                              covers, of the picks whose workers are counted
--           places, nodes                      texts of nodes (queues/placement/pod_nodes.py); and of each pick: the number
--                                              (from 1) of its text, 0 if its nodes are not known. No numbers: no pick's are
--           clock                              the clock after all picks; empty: no pick changes it
--           accounts, overtaken                flat lists of queue, text: the changes of all picks together, and those
--                                              without a pick. They are written if no pick is refused, also if there is no
--                                              pick. An account without a weight is the empty text, and is deleted
--       10 JSON of the values that are needed only if a pick is refused:
--           clocks                             the clock after each pick
--           accounts, overtaken                lists of {pick, queue, text}: the changes of each pick, in their order
--       11 number of next entries to return of each queue; then, per queue: its name, and the number of its first entries to
--          leave out once all picks are taken
-- Keys and preludes: lib/store.lua, lib/heads.lua, lib/usage.lua, lib/limits.lua, lib/records.lua, lib/mark.lua, lib/mark_many.lua, lib/clock.lua
-- Returns: a list of
--   1 the reason of the first refused pick ("": none was refused)   2 number of picks taken
--   3 number of the first pick of kind "admit"   4 number of the last change
--   5 "1" if no other request had changed anything, else "0"   6 names of the queues that other requests had changed
--   7 if a pick has a port or is of kind "grow", per pick taken: its port ("": none), or the JSON reservation of a "grow"
--     Names and picks are joined by line feeds.
--   8 and more, if no pick was refused and next entries are requested: JSON, joined by commas; per queue a list of its name,
--     number of entries left out, number of waiting entries, and a flat list of version, tie-break and entry
-- A repeated id returns the first answer without the next entries: the client repeats a commit whose answer was lost, even if
-- later commits were done since. So the answers of several commits are kept.
-- Errors STORELOST, STALEEPOCH.

local EPOCH, REVISION, ID, FOLLOWS, NOW = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local FIRST_PORT, LAST_PORT = tonumber(ARGV[6]), tonumber(ARGV[7])
local KEPT_ANSWERS = 8 -- at least as many as may be under way at a time (rounds.py)

local refused = refusal(EPOCH) or refusal_after_losses()
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
local entries, reserved = values('torchq:entries', keys), values('torchq:reservations', keys)

local function set_of(list)
  local set = {}
  for _, item in ipairs(list) do
    set[item] = true
  end
  return set
end

local grows, asks, picked = set_of(picks.grows), set_of(picks.ports), {}
local sizes, places, nodes = table_of(picks.sizes), picks.places, picks.nodes

-- Read the distinct demands of the picks, each with the common part of its reservations.
local FURTHER = 65536 -- more than there are picks
local demands, pool = {}, nil
local function read_demands()
  local limits = read_limits()
  pool = limits and cjson.decode(limits) -- the limits that all queues share; nil: unlimited
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
      picks_of_demand = 0,
      cost = picks.costs[at],
      head = '{"attempt":' .. whole(picks.attempts[at]) .. ',"charge":' .. text .. ',"epoch":' .. EPOCH
        .. ',"kind":"admit"',
      middle = ',"paid":' .. whole(picks.costs[at]) .. ',"pick":',
    }
  end
end

local queue_books = {}
local function read_books()
  table.insert(picks.queues, ALL)
  open_books(picks.queues)
  for at, queue in ipairs(picks.queues) do
    local queue_book = books[queue]
    if queue_book.limited then
      used_of(queue_book)
    end
    queue_books[at] = queue_book
  end
end

-- Return the first free port after the last one: 0 if jobs get no ports, nil if none is free.
local last_port
local used_ports = {}
local function next_port()
  if FIRST_PORT == 0 then
    return 0
  end
  last_port = last_port or tonumber(redis.call('GET', 'torchq:port') or 0)
  local size = LAST_PORT - FIRST_PORT + 1
  local start = (last_port < FIRST_PORT or last_port >= LAST_PORT) and 0 or last_port - FIRST_PORT + 1
  for step = 0, size - 1 do
    local port = FIRST_PORT + (start + step) % size
    if not used_ports[port] and redis.call('HEXISTS', 'torchq:ports', whole(port)) == 0 then
      return port
    end
  end
  return nil
end

local reservations, ports, answers, groups = {}, {}, {}, {}
local number, first_number = nil, nil

-- Return the entry of a pick of kind "grow" if it still counts.
local function growth_of(at)
  local reservation = reserved[at] and cjson.decode(reserved[at])
  local entry = cjson.decode(content(entries[at]))
  return may_grow(reservation, entry) and entry or nil
end

-- Add the nodes of a growth to those of a reservation, as queues/placement/pod_nodes.py does.
local MOST_LENGTH = 2048
local function with_nodes(before, more)
  if not (before and more and string.find(before, '*', 1, true)) then
    return before
  end
  local text = before .. ' ' .. more
  return #text <= MOST_LENGTH and text or string.match(before, '^in:%S+')
end

local function grow(at, demand, entry)
  local reservation = cjson.decode(reserved[at])
  charge(reservation.queue, demand.amounts, 1)
  for name, amount in pairs(demand.amounts) do
    reservation.charge[name] = (reservation.charge[name] or 0) + amount
  end
  reservation.size = (reservation.size or 0) + (sizes[at] or 0)
  reservation.grown, reservation.idle = (reservation.grown or 0) + 1, (reservation.idle or 0) - (entry.idle or 0)
  reservation.paid, reservation.gained = demand.cost, sizes[at]
  reservation.nodes = with_nodes(reservation.nodes, places[nodes[at]])
  answers[at] = reservation_text(reservation)
  return answers[at]
end

local function hold_port(at, port)
  answers[at] = whole(port)
  last_port, used_ports[port] = port, true
  ports[#ports + 1] = answers[at]
  ports[#ports + 1] = keys[at]
end

local function admit(at, queue_book, demand, port)
  number = (number or tonumber(redis.call('GET', 'torchq:pick') or 0)) + 1
  first_number = first_number or number
  charge_alike(queue_book, demand, 1)
  charge_cohort(queue_book, demand.counted, 1)
  if pool then
    charge_alike(books[ALL], demand, 1)
  else
    demand.picks_of_demand = demand.picks_of_demand + 1
  end
  if port > 0 then
    hold_port(at, port)
  end
  local size = sizes[at] and ',"size":' .. whole(sizes[at]) .. '}' or '}'
  return demand.head .. nodes_text(places[nodes[at]]) .. demand.middle .. number .. ',"port":' .. port .. ',"queue":' .. quoted(queue_book.queue) .. size
end

-- Add a pick to the picks of its queue, which are kept in the queue's book.
local function take(at, queue_book, tie)
  local others, key = queue_book.keys, keys[at]
  local where = place(tie, key)
  if others then
    local count = #others + 1
    others[count], queue_book.places[count] = key, where
  else
    queue_book.keys, queue_book.places = { key }, { where }
    groups[#groups + 1] = queue_book
    touched[queue_book.queue] = true
  end
end

-- Take the picks one by one. Return the reason of the first refusal, and the number of picks that stand.
local function take_all()
  local versions, find, sub = picks.versions, string.find, string.sub
  for at = 1, #keys do
    local key, entry, queue_book, demand, port = keys[at], entries[at], queue_books[queue_of[at]], demands[demand_of[at]], 0
    local first, last -- the span of the version; the tie-break in quotation marks follows it
    if entry and not picked[key] then
      first, last = find(entry, versions[at], 1, true)
    end
    if first ~= 1 then
      return 'entry', at - 1
    end
    local grown, growth = grows[at], nil
    if grown then
      growth = growth_of(at)
    end
    if grown and not growth or not grown and reserved[at] then
      return 'reservation', at - 1
    end
    local over = queue_book.limited and over_limits(queue_book, demand) or pool and over_pool(pool, demand)
    if over then
      return over, at - 1
    end
    if asks[at] and not grown then
      port = next_port()
    end
    if not port then
      return 'port', at - 1
    end
    take(at, queue_book, sub(entry, last + 2, find(entry, '"', last + 2, true) - 1))
    picked[key] = true
    reservations[2 * at - 1] = key
    reservations[2 * at] = growth and grow(at, demand, growth) or admit(at, queue_book, demand, port)
  end
  return '', #keys
end

-- Return the last text of each queue in the changes of the first picks.
local function last_texts(changes, count)
  local last, flat = {}, {}
  for _, change in ipairs(changes) do
    if change[1] <= count then
      last[change[2]] = change[3]
    end
  end
  for queue, text in pairs(last) do
    flat[#flat + 1] = queue
    flat[#flat + 1] = text
  end
  return flat
end

-- Write texts by queue. An empty text deletes the field.
local function keep(hash, changes)
  local fields, deleted = {}, {}
  for at = 1, #changes, 2 do
    touched[changes[at]] = true
    if changes[at + 1] == '' then
      deleted[#deleted + 1] = changes[at]
    else
      fields[#fields + 1], fields[#fields + 2] = changes[at], changes[at + 1]
    end
  end
  write('HSET', hash, fields)
  write('HDEL', hash, deleted)
end

local function keep_turns(count)
  local clock, accounts, overtaken = picks.clock, picks.accounts, picks.overtaken
  if count < #keys then
    local single_changes = cjson.decode(ARGV[10])
    clock = single_changes.clocks[count]
    accounts, overtaken = last_texts(single_changes.accounts, count), last_texts(single_changes.overtaken, count)
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
    if demand.picks_of_demand > 0 then
      charge_alike(books[ALL], demand, demand.picks_of_demand)
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

-- Return the queues that other requests have changed since the picker's last snapshot; nil if that is not known any more.
local function others()
  if tonumber(KNOWN) < tonumber(redis.call('GET', 'torchq:settled')) then
    return nil
  end
  return redis.call('ZRANGEBYSCORE', 'torchq:changed', '(' .. KNOWN, '+inf')
end

-- Return the ports and grown reservations of the picks that stand, as text; empty if there are none.
local function decided(count)
  if next(answers) == nil then
    return ''
  end
  for at = 1, count do
    answers[at] = answers[at] or ''
  end
  return table.concat(answers, '\n', 1, count)
end

-- Add the next entries of the requested queues to the answer.
local function show(answer)
  local names, skipped, parts = {}, {}, {}
  for at = 12, #ARGV, 2 do
    names[#names + 1] = ARGV[at]
    skipped[ARGV[at]] = tonumber(ARGV[at + 1])
  end
  local line, count = line_up(names, skipped, tonumber(ARGV[11])), 0
  for at, queue in ipairs(names) do
    parts[count + 1], parts[count + 2], parts[count + 3] = count == 0 and '[' or ',[', quoted(queue), ','
    parts[count + 4], parts[count + 5], parts[count + 6] = skipped[queue], ',', line.waiting[at]
    parts[count + 7] = ',['
    count = entries_of(line, at, parts, count + 7) + 1
    parts[count] = ']]'
    count = joined(answer, parts, count, at == #names and 1 or TOGETHER)
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
local number_of_change = number_change()
change = number_of_change and whole(number_of_change) or change
local answer = {
  why, whole(count), whole(first_number or 0), change, alone and '1' or '0', table.concat(changed, '\n'), decided(count),
}
remember(answer)
if why == '' then
  show(answer)
end
return answer
