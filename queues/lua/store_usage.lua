-- Prelude: what queues, cohorts and the pool use while a script runs, read once and written once. Needs store.lua.
--
-- open_books(queues)            reads many at once
-- book(queue)                   {used, quota, limited, borrowing, cohort}: limited says whether there is any quota; cohort is
--                               {quota, used}, or nil outside one. The book of ALL is that of the pool.
-- charge(queue, amounts, sign)  moves the sums
-- save_books()                  writes those that have moved

local ALL = ''
local books, cohorts = {}, {}

local function open_cohorts(names)
  local quotas, used = values('torchq:cohorts', names), values('torchq:shared', names)
  for at, name in ipairs(names) do
    cohorts[name].quota = quotas[at] and decode(quotas[at]) or {}
    cohorts[name].used = used[at] and cjson.decode(used[at]) or {}
  end
end

local function open_books(queues)
  local sums, texts, closed = values('torchq:usage', queues), values('torchq:rules', queues), {}
  for at, queue in ipairs(queues) do
    local name, rules = rules_of(texts[at])
    if name ~= '' and not cohorts[name] then
      closed[#closed + 1] = name
      cohorts[name] = {}
    end
    books[queue] = books[queue] or {
      used = sums[at] and cjson.decode(sums[at]) or {},
      quota = rules.quota,
      limited = next(rules.quota) ~= nil,
      borrowing = rules.borrowing,
      cohort = cohorts[name],
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

-- A sum of 0 is left out.
local function charge(queue, amounts, sign)
  local ours, all = book(queue), book(ALL)
  local own, total, shared = ours.used, all.used, ours.cohort
  for name, amount in pairs(amounts) do
    amount = sign * amount
    local sum = (own[name] or 0) + amount
    own[name] = sum ~= 0 and sum or nil
    sum = (total[name] or 0) + amount
    total[name] = sum ~= 0 and sum or nil
    if shared and ours.quota[name] then
      sum = (shared.used[name] or 0) + amount
      shared.used[name] = sum ~= 0 and sum or nil
      shared.moved = true
    end
  end
  ours.moved, all.moved, touched[queue] = true, true, true
end

-- Sums as JSON, in whatever order, as nobody compares them. cjson writes numbers to 14 digits.
local function sums_text(sums)
  for _, sum in pairs(sums) do
    if sum <= -SHORT or sum >= SHORT then
      return amounts_text(sums)
    end
  end
  return cjson.encode(sums)
end

local function save_books()
  local sums, gone, shared = {}, {}, {}
  for queue, each in pairs(books) do
    if each.moved and next(each.used) == nil then
      gone[#gone + 1] = queue
    elseif each.moved then
      sums[#sums + 1] = queue
      sums[#sums + 1] = sums_text(each.used)
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
  local reservation = decode(text)
  redis.call('HDEL', 'torchq:reservations', key)
  charge(reservation.queue, reservation.charge, -1)
  if reservation.port > 0 and redis.call('HGET', 'torchq:ports', whole(reservation.port)) == key then
    redis.call('HDEL', 'torchq:ports', whole(reservation.port))
  end
end
