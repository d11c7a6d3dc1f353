-- Prelude: what the store's scripts share. It takes no KEYS or ARGV of its own.
--
-- Keys (of all store_*.lua scripts). JSON is made by queues/codec.py; a script that makes any writes it the same way.
--   torchq:epoch              string  epoch of the last rebuild; missing: the store is lost, only a rebuild helps
--   torchq:rebuilding         string  epoch of a rebuild under way; torchq:epoch is missing meanwhile
--   torchq:revision           string  rises with every change of settings
--   torchq:queues             hash    queue -> JSON settings {name, weight, open, quota, cohort, borrowing, strict, aging_seconds}
--   torchq:pool               string  JSON {resource: amount}; missing: nothing is scarce
--   torchq:entries            hash    job key -> JSON entry {key, queue, kind, submitted, priority, attempt, demand, returning}
--   torchq:versions           hash    job key -> version of its entry
--   torchq:version            string  version given last
--   torchq:order:<queue>      zset    place -> score; the place is the job key with "!" for "/", so that ties sort by
--                                     namespace, then name ("!" sorts before every letter of a name, "/" does not)
--   torchq:known              set     queues that may have an order or usage key
--   torchq:reservations       hash    job key -> JSON {attempt, charge, epoch, kind, pick, port, queue}
--   torchq:usage              hash    resource -> sum over all reservations; a sum of 0 is left out
--   torchq:usage:<queue>      hash    resource -> sum over one queue's reservations
--   torchq:ports              hash    port -> key of the job that holds it
--   torchq:port               string  port given last
--   torchq:pick               string  number of the pick taken last
--   torchq:accounts           hash    queue -> JSON account; never read by scripts
--   torchq:clock              string  JSON clock; never read by scripts
--   torchq:overtaken          hash    queue -> JSON {key, since, times}; never read by scripts
--   torchq:commit             hash    id, answer: the last commit and what it answered
-- Numbers are whole and below 2^53, which Lua holds exactly; they are written with whole(), never with tostring.

local BOOST_LIMIT = 604800
local DEFAULT_AGING = 600

local function whole(number)
  return string.format('%.0f', number + 0) -- without the sum, -0 is written with its sign
end

-- The reply that refuses a script's work under `epoch` (0: under whatever epoch there is), or nil.
local function refusal(epoch)
  local known = tonumber(redis.call('GET', 'torchq:epoch'))
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

local function place(key)
  return (string.gsub(key, '/', '!'))
end

local function aging_of(spec)
  return spec and cjson.decode(spec).aging_seconds or DEFAULT_AGING
end

-- queues/order.py says what it means.
local function score(entry, aging)
  local boost = math.max(-BOOST_LIMIT, math.min(entry.priority * aging, BOOST_LIMIT))
  return string.format('%.17g', entry.submitted - boost)
end

local function forget_entry(key)
  local text = redis.call('HGET', 'torchq:entries', key)
  if text then
    redis.call('ZREM', 'torchq:order:' .. cjson.decode(text).queue, place(key))
    redis.call('HDEL', 'torchq:entries', key)
    redis.call('HDEL', 'torchq:versions', key)
  end
end

local function count(usage, charge, sign)
  for name, amount in pairs(charge) do
    if redis.call('HINCRBY', usage, name, whole(sign * amount)) == 0 then
      redis.call('HDEL', usage, name)
    end
  end
end

local function charge_to(queue, charge, sign)
  redis.call('SADD', 'torchq:known', queue)
  count('torchq:usage:' .. queue, charge, sign)
  count('torchq:usage', charge, sign)
end

-- Keep a reservation whose JSON text is given, and take its charge and port.
local function reserve(key, text)
  local reservation = cjson.decode(text)
  redis.call('HSET', 'torchq:reservations', key, text)
  charge_to(reservation.queue, reservation.charge, 1)
  if reservation.port > 0 then
    redis.call('HSET', 'torchq:ports', whole(reservation.port), key)
  end
end

local function release(key)
  redis.call('HDEL', 'torchq:work:made', key)
  local text = redis.call('HGET', 'torchq:reservations', key)
  if text then
    local reservation = cjson.decode(text)
    redis.call('HDEL', 'torchq:reservations', key)
    charge_to(reservation.queue, reservation.charge, -1)
    if redis.call('HGET', 'torchq:ports', whole(reservation.port)) == key then
      redis.call('HDEL', 'torchq:ports', whole(reservation.port))
    end
  end
end
