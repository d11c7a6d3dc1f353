-- Take picks, one by one and in order, until one is refused.
--
-- ARGV: epoch, revision, id of this commit, now (seconds since 1970; empty: the server's time), first port, last port
--       (both 0: no ports), then per pick: job key, version, and JSON of the picks
--       {queue, kind, attempt, demand, clock, accounts {queue: text}, overtaken {queue: text}}
-- Keys and preludes: store.lua, mark.lua, clock.lua
-- Returns: what refused the first refused pick ("" if none was), then per pick taken its job key and JSON reservation.
-- The same id again returns the first answer: the client repeats a commit whose answer was lost.
-- Errors STORELOST, STALEEPOCH.

local EPOCH, REVISION, ID, NOW = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FIRST_PORT, LAST_PORT = tonumber(ARGV[5]), tonumber(ARGV[6])

-- The first free port after the one given last: 0 if none are given, nil if all are taken.
local function next_port()
  if FIRST_PORT == 0 then
    return 0
  end
  local last = tonumber(redis.call('GET', 'torchq:port') or 0)
  local size = LAST_PORT - FIRST_PORT + 1
  local start = (last < FIRST_PORT or last >= LAST_PORT) and 0 or last - FIRST_PORT + 1
  for step = 0, size - 1 do
    local port = FIRST_PORT + (start + step) % size
    if redis.call('HEXISTS', 'torchq:ports', whole(port)) == 0 then
      return port
    end
  end
  return nil
end

local function fits(demand, usage, limits)
  for name, most in pairs(limits) do
    local asked = demand[name] or 0
    if asked > 0 and tonumber(redis.call('HGET', usage, name) or 0) + asked > most then
      return false
    end
  end
  return true
end

local function read_pool()
  local text = redis.call('GET', 'torchq:pool')
  return text and cjson.decode(text) or {}
end

local function refused_by(key, version, pick, pool, port)
  if redis.call('HGET', 'torchq:versions', key) ~= version then
    return 'entry'
  end
  local grows = pick.kind == 'grow'
  if grows ~= (redis.call('HEXISTS', 'torchq:reservations', key) == 1) then
    return 'reservation'
  end
  local spec = cjson.decode(redis.call('HGET', 'torchq:queues', pick.queue))
  if not fits(pick.demand, 'torchq:usage:' .. pick.queue, spec.quota) then
    return 'quota'
  end
  if not fits(pick.demand, 'torchq:usage', pool) then
    return 'pool'
  end
  return (not grows and not port) and 'port' or ''
end

-- cjson writes "\/" for "/".
local function quoted(text)
  return (string.gsub(cjson.encode(text), '\\/', '/'))
end

local function amounts_text(amounts)
  local names, parts = {}, {}
  for name in pairs(amounts) do
    names[#names + 1] = name
  end
  table.sort(names)
  for at, name in ipairs(names) do
    parts[at] = quoted(name) .. ':' .. whole(amounts[name])
  end
  return '{' .. table.concat(parts, ',') .. '}'
end

-- As queues/codec.py writes it.
local function reservation_text(reservation)
  return '{"attempt":' .. whole(reservation.attempt)
    .. ',"charge":' .. amounts_text(reservation.charge)
    .. ',"epoch":' .. whole(reservation.epoch)
    .. ',"kind":"' .. reservation.kind
    .. '","pick":' .. whole(reservation.pick)
    .. ',"port":' .. whole(reservation.port)
    .. ',"queue":' .. quoted(reservation.queue) .. '}'
end

local function grown(key, demand)
  local reservation = cjson.decode(redis.call('HGET', 'torchq:reservations', key))
  for name, amount in pairs(demand) do
    reservation.charge[name] = (reservation.charge[name] or 0) + amount
  end
  release(key)
  return reservation
end

local function admitted(pick, port)
  if port > 0 then
    redis.call('SET', 'torchq:port', whole(port))
  end
  return {
    queue = pick.queue,
    kind = pick.kind,
    attempt = pick.attempt,
    epoch = tonumber(EPOCH),
    charge = pick.demand,
    pick = redis.call('INCR', 'torchq:pick'),
    port = port,
  }
end

local function keep(hash, texts)
  for queue, text in pairs(texts) do
    redis.call('HSET', hash, queue, text)
  end
end

local function take(key, pick, port)
  local reservation = pick.kind == 'grow' and grown(key, pick.demand) or admitted(pick, port)
  local text = reservation_text(reservation)
  forget_entry(key)
  reserve(key, text)
  redis.call('SET', 'torchq:clock', pick.clock)
  keep('torchq:accounts', pick.accounts)
  keep('torchq:overtaken', pick.overtaken)
  mark(key, pick.queue, '0', seconds(clock(NOW)))
  return text
end

local function commit()
  local answer = { '' }
  if redis.call('GET', 'torchq:revision') ~= REVISION then
    answer[1] = 'revision'
    return answer
  end
  local pool = read_pool()
  for at = 7, #ARGV, 3 do
    local key, version, pick = ARGV[at], ARGV[at + 1], cjson.decode(ARGV[at + 2])
    local port = next_port()
    answer[1] = refused_by(key, version, pick, pool, port)
    if answer[1] ~= '' then
      return answer
    end
    answer[#answer + 1] = key
    answer[#answer + 1] = take(key, pick, port)
  end
  return answer
end

local refused = refusal(EPOCH)
if refused then
  return refused
end
if redis.call('HGET', 'torchq:commit', 'id') == ID then
  return cjson.decode(redis.call('HGET', 'torchq:commit', 'answer'))
end
local answer = commit()
redis.call('HSET', 'torchq:commit', 'id', ID, 'answer', cjson.encode(answer))
return answer
