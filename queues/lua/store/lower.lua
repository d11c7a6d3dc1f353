-- Lower the charges of admitted jobs, and free the differences. Of the workers that go, idle ones are the first. Ports stay, and
-- so do entries, but for those of kind "grow" that pay for more idle workers than there are now.
--
-- ARGV: 1 epoch (0: any)   2 newest resourceVersion of pods that the caller knows (empty: lower every charge)
--       then per job: job key, JSON {attempt, grown, size}, JSON of the charge. A job whose reservation has another attempt or
--       another number of growths is left as it is
-- Keys and preludes: lib/store.lua, lib/usage.lua, lib/records.lua, lib/made.lua
-- Returns: the keys whose charge stays, because a worker runs them, or has made pods that are newer than that.
-- Errors STORELOST, STALEEPOCH.

local refused = refusal(ARGV[1]) or refusal_after_losses()
if refused then
  return refused
end
local SEEN = tonumber(ARGV[2])
local retained = {}

-- Lower the amounts of a reservation to the smaller ones. Return what that frees.
local function lower_amounts(reservation, charge)
  local freed, kept = {}, {}
  for name, amount in pairs(reservation.charge) do
    local rest = charge[name] and math.min(amount, charge[name])
    kept[name] = rest
    if amount > (rest or 0) then
      freed[name] = amount - (rest or 0)
    end
  end
  reservation.charge = kept
  return freed
end

local function drop_overpaid(key, reservation)
  local text = redis.call('HGET', 'torchq:entries', key)
  local entry = text and cjson.decode(content(text))
  if entry and (entry.idle or 0) > reservation.idle then
    redis.call('HDEL', 'torchq:entries', key)
    redis.call('ZREM', 'torchq:order:' .. entry.queue, place(tie_of(text), key))
    touched[entry.queue] = true
  end
end

local function lower(key, reservation, desired, amounts)
  local size = math.min(reservation.size or 0, desired.size)
  local freed = lower_amounts(reservation, amounts)
  if next(freed) or size ~= (reservation.size or 0) then
    reservation.idle = math.max(0, (reservation.idle or 0) - ((reservation.size or 0) - size))
    reservation.size, reservation.paid, reservation.gained, reservation.nodes = size, nil, nil, nil
    charge(reservation.queue, freed, -1)
    redis.call('HSET', 'torchq:reservations', key, reservation_text(reservation))
    drop_overpaid(key, reservation)
  end
end

for at = 3, #ARGV, 3 do
  local key, desired = ARGV[at], cjson.decode(ARGV[at + 1])
  local text = redis.call('HGET', 'torchq:reservations', key)
  local reservation = text and cjson.decode(text)
  if reservation and reservation.attempt == desired.attempt and (reservation.grown or 0) == desired.grown then
    if may_have_pods(key, SEEN) then
      retained[#retained + 1] = key
    else
      lower(key, reservation, desired, cjson.decode(ARGV[at + 2]))
    end
  end
end
save_books()
number_change()
return retained
