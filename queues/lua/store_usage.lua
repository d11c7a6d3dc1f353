-- Prelude: what queues, cohorts and the pool use while a script runs, read once and written once. Needs store.lua.
--
-- used(queue), limits(queue), cohort(name)  tables that are read when they are first asked for; read_usage(queues) reads many
-- charge(queue, charge, sign)               moves the sums
-- save_usage()                              writes what has moved

local POOL = ''
local NO_LIMITS = { quota = {}, borrowing = {}, cohort = '' }
local usage, rules, cohorts, moved, moved_cohorts = {}, {}, {}, {}, {}

local function read_usage(queues)
  local sums, texts = values('torchq:usage', queues), values('torchq:rules', queues)
  for at, queue in ipairs(queues) do
    usage[queue] = usage[queue] or (sums[at] and cjson.decode(sums[at]) or {})
    rules[queue] = texts[at] and decode(texts[at]) or NO_LIMITS
  end
end

local function used(queue)
  if not usage[queue] then
    read_usage({ queue })
  end
  return usage[queue]
end

local function limits(queue)
  if not rules[queue] then
    read_usage({ queue })
  end
  return rules[queue]
end

-- The sums of a queue's cohort; nil if it is in none.
local function cohort(queue)
  local name = limits(queue).cohort
  if name == '' then
    return nil
  end
  if not cohorts[name] then
    local text = redis.call('HGET', 'torchq:cohorts', name)
    cohorts[name] = text and cjson.decode(text) or { quota = {}, used = {} }
  end
  return cohorts[name], name
end

-- A sum of 0 is left out.
local function move(sums, name, amount)
  local sum = (sums[name] or 0) + amount
  sums[name] = sum ~= 0 and sum or nil
end

local function charge(queue, amounts, sign)
  local ours, all, quota = used(queue), used(POOL), limits(queue).quota
  local shared, cohort_name = cohort(queue)
  for name, amount in pairs(amounts) do
    move(ours, name, sign * amount)
    move(all, name, sign * amount)
    if shared and quota[name] then
      move(shared.used, name, sign * amount)
    end
  end
  moved[queue], moved[POOL], touched[queue] = true, true, true
  if shared then
    moved_cohorts[cohort_name] = true
  end
end

local function add(amounts, name, amount)
  amounts[name] = (amounts[name] or 0) + amount
end

local function cohort_text(sums)
  return '{"quota":' .. amounts_text(sums.quota) .. ',"used":' .. amounts_text(sums.used) .. '}'
end

local function save_usage()
  local sums, gone, shared = {}, {}, {}
  for queue in pairs(moved) do
    local text = amounts_text(usage[queue])
    if text == '{}' then
      gone[#gone + 1] = queue
    else
      sums[#sums + 1] = queue
      sums[#sums + 1] = text
    end
  end
  for name in pairs(moved_cohorts) do
    shared[#shared + 1] = name
    shared[#shared + 1] = cohort_text(cohorts[name])
  end
  write('HSET', 'torchq:usage', sums)
  write('HDEL', 'torchq:usage', gone)
  write('HSET', 'torchq:cohorts', shared)
end

-- Add all cohorts up anew.
local function count_cohorts()
  local flat, sums, texts = redis.call('HGETALL', 'torchq:rules'), {}, {}
  for at = 1, #flat, 2 do
    local own = decode(flat[at + 1])
    if own.cohort ~= '' then
      sums[own.cohort] = sums[own.cohort] or { quota = {}, used = {} }
      local text = redis.call('HGET', 'torchq:usage', flat[at])
      local uses = text and cjson.decode(text) or {}
      for name, most in pairs(own.quota) do
        add(sums[own.cohort].quota, name, most)
        move(sums[own.cohort].used, name, uses[name] or 0)
      end
    end
  end
  for name, each in pairs(sums) do
    texts[#texts + 1] = name
    texts[#texts + 1] = cohort_text(each)
  end
  redis.call('DEL', 'torchq:cohorts')
  write('HSET', 'torchq:cohorts', texts)
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
