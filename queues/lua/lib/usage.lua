-- Prelude: the usage of queues, cohorts and the pool while a script runs, read once and written once. Needs lib/store.lua.
--
-- open_books(queues)                reads the books of many queues at once
-- book(queue)                       {queue, quota, limited, borrowing, cohort, keys, places}: limited is whether there is any quota;
--                                   cohort is {quota, used}, or nil without a cohort; the script uses keys and places itself. The
--                                   book of ALL is that of the pool.
-- used_of(book)                     the sums of a book
-- read_limits()                     reads the counted resources, and returns the JSON of the pool, false if there is none
-- counting(amounts)                 the amounts of counted resources; calls read_limits() if the script has not
-- charge(queue, amounts, sign)      changes the sums of a queue, its cohort and the pool
-- charge_alike(book, asked, times)  changes the sums of one book: asked is {number, counted}, where counted is the result of
--                                   counting(), and the numbers of two demands differ by more than times. Books with equal sums and
--                                   equal charges are encoded once.
-- charge_cohort(book, counted, sign) changes the sums of the book's cohort, if it has one
-- save_books()                      writes the changed sums

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
local ruled = {}
local function ruled_by(text)
  local found = ruled[text]
  if not found then
    local name, rules = rules_of(text)
    found = { name = name, quota = rules.quota, borrowing = rules.borrowing, limited = next(rules.quota) ~= nil }
    ruled[text] = found
  end
  return found
end

local function open_books(queues)
  local sums, texts, closed = values('torchq:usage', queues), values('torchq:rules', queues), {}
  for at = 1, #queues do
    local queue, rules = queues[at], ruled_by(texts[at])
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
      asked = false,
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
  local found = redis.call('MGET', 'torchq:counted', 'torchq:pool')
  counted_names = found[1] and {} or true
  for _, name in ipairs(found[1] and cjson.decode(found[1]) or {}) do
    counted_names[name] = true
  end
  return found[2]
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

local function used_of(own)
  if not own.used then
    own.used = {}
    for name, sum in pairs(decode(own.text)) do
      own.used[name] = sum
    end
    if own.asked then
      add(own.used, own.asked.counted, own.times)
    end
  end
  return own.used
end

local function charge_cohort(own, counted, sign)
  local shared = own.cohort
  if not shared then
    return
  end
  for name, amount in pairs(counted) do
    if own.quota[name] then
      local sum = (shared.used[name] or 0) + sign * amount
      shared.used[name] = sum ~= 0 and sum or nil
      shared.moved = true
    end
  end
end

local function charge(queue, amounts, sign)
  local ours, all, counted = book(queue), book(ALL), counting(amounts)
  add(used_of(ours), counted, sign)
  add(used_of(all), counted, sign)
  charge_cohort(ours, counted, sign)
  ours.moved, all.moved, touched[queue] = true, true, true
  ours.mixed, all.mixed = true, true
end

local function charge_alike(own, asked, times)
  if own.asked and own.asked ~= asked then
    used_of(own) -- before the list of its equal charges is cleared
    own.mixed = true
  end
  if own.used then
    add(own.used, asked.counted, times)
  end
  own.asked, own.times, own.moved = asked, own.times + times, true
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
local function reckon(own)
  if own.mixed then
    return sums_text(own.used)
  end
  local known, which = list(reckoned, own.text), own.asked.number + own.times
  local found = known[which]
  if not found then
    found = sums_text(used_of(own))
    known[which] = found
  end
  return found
end

local function save_books()
  local sums, gone, shared = {}, {}, {}
  for queue, each in pairs(books) do
    local text = each.moved and reckon(each)
    if text == '{}' then
      gone[#gone + 1] = queue
    elseif text then
      sums[#sums + 1] = queue
      sums[#sums + 1] = text
    end
  end
  for name, each in pairs(cohorts) do
    if each.moved then
      shared[#shared + 1] = name
      shared[#shared + 1] = sums_text(each.used)
    end
  end
  write('HSET', 'torchq:usage', sums)
  write('HDEL', 'torchq:usage', gone)
  write('HSET', 'torchq:shared', shared)
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
