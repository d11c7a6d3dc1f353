-- Raise the charge of an admitted job, or refuse and change nothing. For each resource, the reservation gets the larger of its
-- charge and the requested amount, so that a repeated call changes nothing.
--
-- ARGV: 1 key   2 token of the worker that runs it   3 attempt of the reservation   4 JSON of amounts
-- Keys and preludes: lib/store.lua, lib/usage.lua, lib/limits.lua, lib/records.lua; of lib/mark.lua's keys it reads the records
-- Returns: "" if the reservation has that charge now; "quota", "cohort" or "pool", whichever has no room for the difference;
-- "reservation" if the token is no longer the key's, if a rebuild has happened since the run began, or if the key holds no
-- reservation of that attempt. Error STORELOST.

local KEY, TOKEN, ATTEMPT = ARGV[1], ARGV[2], tonumber(ARGV[3])

local refused = refusal(0) or refusal_after_losses()
if refused then
  return refused
end
local record, text = record_of(KEY), redis.call('HGET', 'torchq:reservations', KEY)
if not text or not record or record.token ~= TOKEN or record.epoch ~= redis.call('GET', 'torchq:epoch') then
  return 'reservation'
end
local reservation = cjson.decode(text)
if reservation.attempt ~= ATTEMPT then
  return 'reservation'
end

local more, names, sizes = {}, {}, {}
for name, amount in pairs(cjson.decode(ARGV[4])) do
  local size = amount - (reservation.charge[name] or 0)
  if size > 0 then
    more[name], reservation.charge[name] = size, amount
    names[#names + 1], sizes[#sizes + 1] = name, size
  end
end
if #names == 0 then
  return ''
end

open_books({ reservation.queue, ALL })
local queue_book, demand = books[reservation.queue], { names = names, sizes = sizes }
used_of(queue_book)
local pool = read_limits()
local over = over_limits(queue_book, demand) or pool and over_pool(cjson.decode(pool), demand)
if over then
  return over
end
charge(reservation.queue, more, 1)
redis.call('HSET', 'torchq:reservations', KEY, reservation_text(reservation))
save_books()
number_change()
return ''
