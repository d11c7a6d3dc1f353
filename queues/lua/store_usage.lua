-- Prelude: what queues, cohorts and the pool use while a script runs, read once and written once. Needs store.lua.
--
-- open_books(queues)            reads many at once
-- book(queue)                   {used, quota, borrowing, cohort}: tables; cohort is {quota, used}, or nil outside one. The book of
--                               ALL is that of the pool.
-- charge(queue, amounts, sign)  moves the sums
-- save_books()                  writes those that have moved

local ALL = ''
local NO_RULES = { quota = {}, borrowing = {}, cohort = '' }
local books, cohorts = {}, {}

local function cohort(name)
  if name == '' then
    return nil
  end
  if not cohorts[name] then
    local text = redis.call('HGET', 'torchq:cohorts', name)
    cohorts[name] = text and cjson.decode(text) or { quota = {}, used = {} }
  end
  return cohorts[name]
end

local function open_books(queues)
  local sums, texts = values('torchq:usage', queues), values('torchq:rules', queues)
  for at, queue in ipairs(queues) do
    local rules = texts[at] and decode(texts[at]) or NO_RULES
    books[queue] = books[queue] or {
      used = sums[at] and cjson.decode(sums[at]) or {},
      quota = rules.quota,
      limited = next(rules.quota) ~= nil,
      borrowing = rules.borrowing,
      cohort = cohort(rules.cohort),
    }
  end
end

local function book(queue)
  if not books[queue] then
    open_books({ queue })
  end
  return books[queue]
end

-- A sum of 0 is left out.
local function charge(queue, amounts, sign)
  local ours, all = book(queue), book(ALL)
  local own, total, shared = ours.used, all.used, ours.cohort
  for name, amount in pairs(amounts) do
    local sum = (own[name] or 0) + sign * amount
    own[name] = sum ~= 0 and sum or nil
    sum = (total[name] or 0) + sign * amount
    total[name] = sum ~= 0 and sum or nil
    if shared and ours.quota[name] then
      sum = (shared.used[name] or 0) + sign * amount
      shared.used[name] = sum ~= 0 and sum or nil
      shared.moved = true
    end
  end
  ours.moved, all.moved, touched[queue] = true, true, true
end

local function cohort_text(sums)
  return '{"quota":' .. amounts_text(sums.quota) .. ',"used":' .. amounts_text(sums.used) .. '}'
end

local function save_books()
  local sums, gone, shared = {}, {}, {}
  for queue, each in pairs(books) do
    if each.moved and next(each.used) == nil then
      gone[#gone + 1] = queue
    elseif each.moved then
      sums[#sums + 1] = queue
      sums[#sums + 1] = amounts_text(each.used)
    end
  end
  for name, each in pairs(cohorts) do
    if each.moved then
      shared[#shared + 1] = name
      shared[#shared + 1] = cohort_text(each)
    end
  end
  write('HSET', 'torchq:usage', sums)
  write('HDEL', 'torchq:usage', gone)
  write('HSET', 'torchq:cohorts', shared)
end

-- Keep a reservation whose JSON text is given, and take its charge and port.
local function reserve(key, text)
  local reservation = cjson.decode(text)
  redis.call('HSET', 'torchq:reservations', key, text)
  charge(reservation.queue, reservation.charge, 1)
  if reservation.port > 0 then
    redis.call('HSET', 'torchq:ports', whole(reservation.port), key)
  end
end

-- Free a reservation whose JSON text is given.
local function release(key, text)
  local reservation = cjson.decode(text)
  redis.call('HDEL', 'torchq:reservations', key)
  charge(reservation.queue, reservation.charge, -1)
  if reservation.port > 0 and redis.call('HGET', 'torchq:ports', whole(reservation.port)) == key then
    redis.call('HDEL', 'torchq:ports', whole(reservation.port))
  end
end
