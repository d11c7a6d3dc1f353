-- Take picks, one by one and in order, until one is refused. What is needed is read for all picks at once, and what they
-- change is written for all at once.
--
-- ARGV: 1 epoch   2 revision   3 id of this commit   4 now (seconds since 1970; empty: the server's time)
--       5 first port   6 last port (both 0: no ports)   7 the last change the chooser knew of
--       8 JSON of the picks, column by column:
--           keys, places                       of each pick: the job key, and the same with "!" for "/"
--           versions                           of each pick: the version of its entry, and a comma
--           clocks                             of each pick, joined by line feeds, as only one of them is needed
--           queues, queue                      names, and which of them (from 1) each pick's is
--           demands, demand                    JSON texts of amounts, and which of them each pick's is
--           attempts                           number of each pick
--           grows                              picks (from 1) whose kind is "grow"; all others' is "admit"
--           ports                              picks for which a port is to be held
--           accounts, overtaken                flat lists of pick, queue, text: what a pick changes, in order of picks
--       9 how many entries to show of queues that follow, each with the number of its first entries to leave out once all
--         picks are taken
-- Keys and preludes: store.lua, store_heads.lua, store_usage.lua, mark.lua, mark_many.lua, clock.lua
-- Returns: a list of: what refused the first refused pick ("" if none was), number of picks taken, number given to the first
-- pick of kind "admit", number of the last change, "1" if nothing else had changed else "0", the names of queues that others
-- had changed; then, if there is any port or a pick that grew, per pick taken: its port, "" if it has none, or, if it grew,
-- its JSON reservation. Names and what is said of picks are joined by line feeds. If no pick was refused there follows, per
-- queue to show, a JSON list: its name, how many entries are left out, how many wait, flat list of version and entry.
-- The same id again returns the first answer, but for the queues to show: the client repeats a commit whose answer was lost.
-- Errors STORELOST, STALEEPOCH.

local EPOCH, REVISION, ID, NOW = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FIRST_PORT, LAST_PORT, KNOWN = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local refused = refusal(EPOCH)
if refused then
  return refused
end
if redis.call('HGET', 'torchq:commit', 'id') == ID then
  return cjson.decode(redis.call('HGET', 'torchq:commit', 'answer'))
end

local picks = cjson.decode(ARGV[8])
local keys, where, queues = picks.keys, picks.places, picks.queues
local entries, held = values('torchq:entries', where), values('torchq:reservations', keys)
local demands, grows, asks, gone, tenants = {}, {}, {}, {}, {}

local function read_picks()
  table.insert(queues, ALL)
  open_books(queues)
  for at, text in ipairs(picks.demands) do
    demands[at] = cjson.decode(text)
  end
  for _, at in ipairs(picks.grows) do
    grows[at] = true
  end
  for _, at in ipairs(picks.ports) do
    asks[at] = true
  end
end

-- What all queues share; nil if nothing is scarce.
local function read_pool()
  local text = redis.call('GET', 'torchq:pool')
  return text and cjson.decode(text)
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

-- Which limit of its queue has no room for a demand.
local function over_limits(own, demand)
  local shared, over_cohort = own.cohort, false
  for name, asked in pairs(demand) do
    local most = own.quota[name]
    if most and asked > 0 then
      local borrowed = shared and (own.borrowing[name] or math.huge) or 0
      if (own.used[name] or 0) + asked > most + borrowed then
        return 'quota'
      end
      over_cohort = over_cohort or shared and (shared.used[name] or 0) + asked > (shared.quota[name] or 0)
    end
  end
  return over_cohort and 'cohort' or nil
end

local function over_pool(pool, demand)
  local used = book(ALL).used
  for name, asked in pairs(demand) do
    if pool[name] and asked > 0 and (used[name] or 0) + asked > pool[name] then
      return 'pool'
    end
  end
  return nil
end

-- Why a pick cannot stand, or nil.
local function refused_by(at, queue, demand, pool, port)
  local entry, version, own = entries[at], picks.versions[at], books[queue]
  if not entry or gone[keys[at]] or string.sub(entry, 1, #version) ~= version then
    return 'entry'
  end
  if (grows[at] or false) ~= (held[at] ~= false) then
    return 'reservation'
  end
  return own.limited and over_limits(own, demand)
    or pool and over_pool(pool, demand)
    or not port and not grows[at] and 'port'
    or nil
end

-- As queues/codec.py writes it.
local function reservation_text(attempt, charge_text, epoch, kind, pick, port, queue)
  return '{"attempt":' .. attempt .. ',"charge":' .. charge_text .. ',"epoch":' .. epoch .. ',"kind":"' .. kind
    .. '","pick":' .. pick .. ',"port":' .. port .. ',"queue":' .. quoted(queue) .. '}'
end

local reservations, ports, answers = {}, {}, {}
local number, first_number = nil, nil
local plain = true -- no port was given and nothing grew

local function grow(at, demand)
  local was = cjson.decode(held[at])
  charge(was.queue, demand, 1)
  for name, amount in pairs(demand) do
    was.charge[name] = (was.charge[name] or 0) + amount
  end
  answers[at] = reservation_text(
    whole(was.attempt), amounts_text(was.charge), whole(was.epoch), was.kind, whole(was.pick), whole(was.port), was.queue
  )
  plain = false
  return answers[at]
end

-- The same of a new one, from parts that many have in common.
local middles, ends = {}, {}
local function admitted_text(at, queue, port)
  local demand = picks.demand[at]
  local middle, last = middles[demand], ends[queue]
  if not middle then
    middle = ',"charge":' .. picks.demands[demand] .. ',"epoch":' .. EPOCH .. ',"kind":"admit","pick":'
    middles[demand] = middle
  end
  if not last then
    last = ',"queue":' .. quoted(queue) .. '}'
    ends[queue] = last
  end
  return '{"attempt":' .. picks.attempts[at] .. middle .. number .. ',"port":' .. port .. last
end

local function admit(at, queue, demand, port)
  number = (number or tonumber(redis.call('GET', 'torchq:pick') or 0)) + 1
  first_number = first_number or number
  charge(queue, demand, 1)
  answers[at] = ''
  if port > 0 then
    answers[at], plain = whole(port), false
    last_port, given[port] = port, true
    ports[#ports + 1] = answers[at]
    ports[#ports + 1] = keys[at]
  end
  return admitted_text(at, queue, port)
end

local function take(at, queue, demand, port)
  local key = keys[at]
  gone[key] = true
  tenants[at] = queue
  reservations[2 * at - 1] = key
  reservations[2 * at] = grows[at] and grow(at, demand) or admit(at, queue, demand, port)
end

-- What the picks that were taken changed in a hash: the last word on each queue.
local function keep(hash, changes, count)
  local last, flat = {}, {}
  for at = 1, #changes, 3 do
    if changes[at] <= count then
      last[changes[at + 1]] = changes[at + 2]
    end
  end
  for queue, text in pairs(last) do
    touched[queue] = true
    flat[#flat + 1] = queue
    flat[#flat + 1] = text
  end
  write('HSET', hash, flat)
end

local function leave_queues(count)
  local leaving, left = {}, {}
  for at = 1, count do
    local place, some = where[at], list(leaving, tenants[at])
    left[at] = place
    some[#some + 1] = place
  end
  write('HDEL', 'torchq:entries', left)
  for queue, some in pairs(leaving) do
    touched[queue] = true
    write('ZREM', 'torchq:order:' .. queue, some)
  end
end

-- One line of a text.
local function line(text, number)
  for each in string.gmatch(text, '[^\n]+') do
    number = number - 1
    if number == 0 then
      return each
    end
  end
end

local function save(count)
  leave_queues(count)
  write('HSET', 'torchq:reservations', reservations)
  write('HSET', 'torchq:ports', ports)
  if last_port then
    redis.call('SET', 'torchq:port', whole(last_port))
  end
  if number then
    redis.call('SET', 'torchq:pick', whole(number))
  end
  redis.call('SET', 'torchq:clock', line(picks.clocks, count))
  keep('torchq:accounts', picks.accounts, count)
  keep('torchq:overtaken', picks.overtaken, count)
  save_books()
  mark_many(keys, tenants, count, seconds(clock(NOW)))
end

-- Who else has changed something since the chooser looked: nil if nobody knows any more.
local function others()
  if KNOWN < tonumber(redis.call('GET', 'torchq:settled')) then
    return nil
  end
  return redis.call('ZRANGEBYSCORE', 'torchq:changed', '(' .. ARGV[7], '+inf')
end

-- The queues to show, as parts of the answer.
local function show(answer)
  local named, skipped = {}, {}
  for at = 10, #ARGV, 2 do
    named[#named + 1] = ARGV[at]
    skipped[ARGV[at]] = tonumber(ARGV[at + 1])
  end
  local line = line_up(named, skipped, tonumber(ARGV[9]))
  for at, queue in ipairs(named) do
    answer[#answer + 1] = table.concat({
      '[', quoted(queue), ',', skipped[queue], ',', line.waiting[at], ',', entries_of(line, at), ']',
    })
  end
end

local function commit()
  if redis.call('GET', 'torchq:revision') ~= REVISION then
    return 'revision', 0
  end
  read_picks()
  local pool = read_pool()
  for at = 1, #keys do
    local queue, demand, port = queues[picks.queue[at]], demands[picks.demand[at]], 0
    if asks[at] then
      port = next_port()
    end
    local why = refused_by(at, queue, demand, pool, port)
    if why then
      return why, at - 1
    end
    take(at, queue, demand, port)
  end
  return '', #keys
end

local change = redis.call('GET', 'torchq:change')
local alone, changed = tonumber(change) == KNOWN, others() or {}
local why, count = commit()
if count > 0 then
  save(count)
  change = whole(tell_changes())
end
local answer = {
  why, whole(count), whole(first_number or 0), change, alone and '1' or '0', table.concat(changed, '\n'),
  plain and '' or table.concat(answers, '\n', 1, count),
}
redis.call('HSET', 'torchq:commit', 'id', ID, 'answer', cjson.encode(answer))
if why == '' then
  show(answer)
end
return answer
