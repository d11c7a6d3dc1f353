-- Read reservations.
--
-- ARGV: epoch (0: any), "all" or "some", then for "some": job keys
-- Keys and preludes: lib/store.lua
-- Returns: per reservation: job key, its JSON text. Errors STORELOST, STALEEPOCH.

local refused = refusal(ARGV[1])
if refused then
  return refused
end
if ARGV[2] == 'all' then
  return redis.call('HGETALL', 'torchq:reservations')
end
local answer = {}
for at = 3, #ARGV do
  local text = redis.call('HGET', 'torchq:reservations', ARGV[at])
  if text then
    answer[#answer + 1] = ARGV[at]
    answer[#answer + 1] = text
  end
end
return answer
