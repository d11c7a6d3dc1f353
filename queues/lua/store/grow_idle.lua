-- Give admitted jobs further workers out of room that is free, each wholly or not at all. Their queues pay nothing: accounts, clock
-- and turns stay as they are.
--
-- ARGV: 1 epoch   2 revision   3 id of this call   4 now (seconds since 1970; empty: the server's time)
--       then per growth: job key, JSON {attempt, grown, workers}, JSON of the amounts that the workers add to the charge
-- Keys and preludes: lib/store.lua, lib/usage.lua, lib/limits.lua, lib/records.lua, lib/mark.lua, lib/clock.lua
-- Returns: per growth the reason why it is refused ("": it is not): "revision"; "reservation" if the job's reservation has another
-- attempt or another number of growths, or if there is none; "entry" if the job waits for a growth that is paid; "quota", "cohort" or
-- "pool", whichever has no room. A repeated id returns the first answer. Errors STORELOST, STALEEPOCH.

local REVISION, ID = ARGV[2], ARGV[3]

local refused = refusal(ARGV[1]) or refusal_after_losses()
if refused then
  return refused
end
local last = redis.call('HGET', 'torchq:commit', 'idle')
last = last and cjson.decode(last)
if last and last.id == ID then
  return last.answer
end

local now, limits = seconds(clock(ARGV[4])), read_limits()
local pool = limits and cjson.decode(limits)

-- Return the limit that has no room for the amounts of a growth, or nil.
local function find_exceeded(queue, amounts)
  local demand = { names = {}, sizes = {} }
  for name, amount in pairs(amounts) do
    table.insert(demand.names, name)
    table.insert(demand.sizes, amount)
  end
  local queue_book = book(queue)
  used_of(queue_book)
  book(ALL)
  return over_limits(queue_book, demand) or pool and over_pool(pool, demand)
end

local function grow(key, reservation, workers, amounts)
  charge(reservation.queue, amounts, 1)
  for name, amount in pairs(amounts) do
    reservation.charge[name] = (reservation.charge[name] or 0) + amount
  end
  reservation.size, reservation.idle = (reservation.size or 0) + workers, (reservation.idle or 0) + workers
  reservation.grown, reservation.paid, reservation.gained = (reservation.grown or 0) + 1, nil, nil
  redis.call('HSET', 'torchq:reservations', key, reservation_text(reservation))
  mark(key, reservation.queue, '0', now, 'begins')
end

-- Give one job its workers. Return the reason if they are refused.
local function grow_one(key, desired, amounts)
  local text = redis.call('HGET', 'torchq:reservations', key)
  local reservation = text and cjson.decode(text)
  if not reservation or reservation.attempt ~= desired.attempt or (reservation.grown or 0) ~= desired.grown then
    return 'reservation'
  end
  if redis.call('HEXISTS', 'torchq:entries', key) == 1 then
    return 'entry'
  end
  local over = find_exceeded(reservation.queue, amounts)
  if not over then
    grow(key, reservation, desired.workers, amounts)
  end
  return over or ''
end

local is_outdated, answer = redis.call('GET', 'torchq:revision') ~= REVISION, {}
for at = 5, #ARGV, 3 do
  answer[#answer + 1] = is_outdated and 'revision' or grow_one(ARGV[at], cjson.decode(ARGV[at + 1]), cjson.decode(ARGV[at + 2]))
end
save_books()
number_change()
redis.call('HSET', 'torchq:commit', 'idle', cjson.encode({ id = ID, answer = answer }))
return answer
