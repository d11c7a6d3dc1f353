-- Prelude: the usage of queues, cohorts and the pool while a script runs, read once and written once. Needs lib/store.lua.
--
-- has_lost_rules()                  whether the store has lost either torchq:queues or torchq:rules
-- refusal_after_losses()            the error reply for a store that has lost only its sums or limits, or nil
-- open_books(queues)                reads the books of many queues at once
-- book(queue)                       {queue, quota, limited, borrowing, cohort, keys, places}: limited is whether there is any quota;
--                                   cohort is {quota, used}, or nil without a cohort; the script uses keys and places itself. The
--                                   book of ALL is that of the pool.
-- used_of(book)                     the sums of a book
-- read_limits()                     reads the counted resources, and returns the JSON of the pool, false if there is none
-- counting(amounts)                 the amounts of counted resources; calls read_limits() if the script has not
-- charge(queue, amounts, sign)      changes the sums of a queue, its cohort and the pool
-- charge_alike(book, demand, times) changes the sums of one book: demand is {number, counted}, where counted is the result of
--                                   counting(), and the numbers of two demands differ by more than times. Books with equal sums and
--                                   equal charges are encoded once.
-- charge_cohort(book, counted, sign) changes the sums of the book's cohort, if it has one
-- save_books()                      writes the changed sums
-- reservation_text(reservation)     the JSON of a decoded reservation, in the form of queues/redis/codec.py

local ALL = ''
local books, cohorts = {}, {}

local function open_cohorts(names)
  local quotas, used = values('torchq:cohorts', names), values('torchq:shared', names)
  for at, name in ipairs(names) do
    cohorts[name].quota = quotas[at] and decode(quotas[at]) or {}
    cohorts[name].used = used[at] and cjson.decode(used[at]) or {}
  end
end

-- The cohort and the rules by their text, which many queues have in common.
local rules_cache = {}
local function rules_by_text(text)
  local entry = rules_cache[text]
  if not entry then
    local name, rules = rules_of(text)
    entry = { name = name, quota = rules.quota, borrowing = rules.borrowing, limited = next(rules.quota) ~= nil }
    rules_cache[text] = entry
  end
  return entry
end

local function open_books(queues)
  local sums, texts, closed = values('torchq:usage', queues), values('torchq:rules', queues), {}
  for at = 1, #queues do
    local queue, rules = queues[at], rules_by_text(texts[at])
    local name = rules.name
    if name ~= '' and not cohorts[name] then
      closed[#closed + 1] = name
      cohorts[name] = {}
    end
    books[queue] = books[queue] or {
      queue = queue,
      text = sums[at] or '{}',
      quota = rules.quota,
      limited = rules.limited,
      borrowing = rules.borrowing,
      cohort = cohorts[name],
      demand = false,
      times = 0,
      moved = false,
      keys = false, -- all fields at once, because a table that grows is allocated again
      places = false,
    }
  end
  if #closed > 0 then
    open_cohorts(closed)
  end
end

local function book(queue)
  if not books[queue] then
    open_books({ queue })
  end
  return books[queue]
end

local counted_names = nil -- true: all resources are counted
local function read_limits()
  local answers = redis.call('MGET', 'torchq:counted', 'torchq:pool')
  counted_names = answers[1] and {} or true
  for _, name in ipairs(answers[1] and cjson.decode(answers[1]) or {}) do
    counted_names[name] = true
  end
  return answers[2]
end

local function counting(amounts)
  if not counted_names then
    read_limits()
  end
  if counted_names == true then
    return amounts
  end
  local counted = {}
  for name, amount in pairs(amounts) do
    if counted_names[name] then
      counted[name] = amount
    end
  end
  return counted
end

-- Add amounts to sums. A sum of 0 is removed.
local function add(sums, amounts, times)
  for name, amount in pairs(amounts) do
    local sum = (sums[name] or 0) + times * amount
    sums[name] = sum ~= 0 and sum or nil
  end
end

local function used_of(queue_book)
  if not queue_book.used then
    queue_book.used = {}
    for name, sum in pairs(decode(queue_book.text)) do
      queue_book.used[name] = sum
    end
    if queue_book.demand then
      add(queue_book.used, queue_book.demand.counted, queue_book.times)
    end
  end
  return queue_book.used
end

local function charge_cohort(queue_book, counted, sign)
  local shared = queue_book.cohort
  if not shared then
    return
  end
  for name, amount in pairs(counted) do
    if queue_book.quota[name] then
      local sum = (shared.used[name] or 0) + sign * amount
      shared.used[name] = sum ~= 0 and sum or nil
      shared.moved = true
    end
  end
end

local function charge(queue, amounts, sign)
  local queue_book, all, counted = book(queue), book(ALL), counting(amounts)
  add(used_of(queue_book), counted, sign)
  add(used_of(all), counted, sign)
  charge_cohort(queue_book, counted, sign)
  queue_book.moved, all.moved, touched[queue] = true, true, true
  queue_book.mixed, all.mixed = true, true
end

local function charge_alike(queue_book, demand, times)
  if queue_book.demand and queue_book.demand ~= demand then
    used_of(queue_book) -- before the list of its equal charges is cleared
    queue_book.mixed = true
  end
  if queue_book.used then
    add(queue_book.used, demand.counted, times)
  end
  queue_book.demand, queue_book.times, queue_book.moved = demand, queue_book.times + times, true
end

-- Return sums as JSON in any order, because these texts are not compared. cjson writes numbers with only 14 digits.
local function sums_text(sums)
  for _, sum in pairs(sums) do
    if sum <= -SHORT or sum >= SHORT then
      return amounts_text(sums)
    end
  end
  return next(sums) and cjson.encode(sums) or '{}'
end

local reckoned = {}
local function reckon(queue_book)
  if queue_book.mixed then
    return sums_text(queue_book.used)
  end
  local texts, charges = list(reckoned, queue_book.text), queue_book.demand.number + queue_book.times
  local text = texts[charges]
  if not text then
    text = sums_text(used_of(queue_book))
    texts[charges] = text
  end
  return text
end

local function save_books()
  local sums, unused, shared = {}, {}, {}
  for queue, queue_book in pairs(books) do
    local text = queue_book.moved and reckon(queue_book)
    if text == '{}' then
      unused[#unused + 1] = queue
    elseif text then
      sums[#sums + 1] = queue
      sums[#sums + 1] = text
    end
  end
  for name, cohort in pairs(cohorts) do
    if cohort.moved then
      shared[#shared + 1] = name
      shared[#shared + 1] = sums_text(cohort.used)
    end
  end
  write('HSET', 'torchq:usage', sums)
  write('HDEL', 'torchq:usage', unused)
  write('HSET', 'torchq:shared', shared)
end

-- Return a flat list of names and values as a table.
local function table_of(flat)
  local fields = {}
  for at = 1, #flat, 2 do
    fields[flat[at]] = flat[at + 1]
  end
  return fields
end

-- Return where the pods of a reservation were placed, as a part of its JSON; nil or "": nothing is known.
local function nodes_text(nodes)
  return nodes and nodes ~= '' and ',"nodes":' .. quoted(nodes) or ''
end

local function reservation_text(reservation)
  local function optional(name)
    local number = reservation[name] or 0
    return number > 0 and ',"' .. name .. '":' .. whole(number) or ''
  end
  return '{"attempt":' .. whole(reservation.attempt) .. ',"charge":' .. amounts_text(reservation.charge)
    .. ',"epoch":' .. whole(reservation.epoch) .. optional('gained') .. optional('grown') .. optional('idle')
    .. ',"kind":"' .. reservation.kind .. '"' .. nodes_text(reservation.nodes) .. optional('paid') .. ',"pick":' .. whole(reservation.pick)
    .. ',"port":' .. whole(reservation.port) .. ',"queue":' .. quoted(reservation.queue) .. optional('size') .. '}'
end

-- Write a reservation from its JSON text, and add its charge and port.
local function reserve(key, text)
  local reservation = cjson.decode(text)
  redis.call('HSET', 'torchq:reservations', key, text)
  charge(reservation.queue, reservation.charge, 1)
  if reservation.port > 0 then
    redis.call('HSET', 'torchq:ports', whole(reservation.port), key)
  end
end

-- Delete a reservation with this JSON text, and free its charge and port.
local function release(key, text)
  local reservation = decode(text)
  redis.call('HDEL', 'torchq:reservations', key)
  charge(reservation.queue, reservation.charge, -1)
  if reservation.port > 0 and redis.call('HGET', 'torchq:ports', whole(reservation.port)) == key then
    redis.call('HDEL', 'torchq:ports', whole(reservation.port))
  end
end

local function is_counted(text)
  for _, amount in pairs(counting(cjson.decode(text).charge)) do
    if amount ~= 0 then
      return true
    end
  end
  return false
end

local function exists(key)
  return redis.call('EXISTS', key) == 1
end

-- A Redis that evicts keys may lose any key alone.
local function has_lost_rules()
  return exists('torchq:queues') ~= exists('torchq:rules')
end

-- All reservations are read only if there are no sums.
local function refusal_after_losses()
  if has_lost_rules() or exists('torchq:cohorts') ~= exists('torchq:shared') then
    return redis.error_reply('STORELOST the limits of queues or cohorts are lost, and the queues must be rebuilt')
  end
  if redis.call('HEXISTS', 'torchq:usage', ALL) == 1 then
    return nil
  end
  for _, text in ipairs(redis.call('HVALS', 'torchq:reservations')) do
    if is_counted(text) then
      return redis.error_reply('STORELOST the sums of what queues use are lost, and the queues must be rebuilt')
    end
  end
  return nil
end
