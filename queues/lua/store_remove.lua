-- Jobs that wait no longer and hold nothing: forget the entries, free charges and ports.
--
-- ARGV: epoch (0: whatever it is), newest resourceVersion of pods the caller knows of (empty: free whatever there may
--       be), then job keys
-- Keys and preludes: store.lua; of mark.lua's keys the records and torchq:work:made are read
-- Returns: the keys whose reservation was kept: somebody is at work on them, or has made pods later than that.
-- Errors STORELOST, STALEEPOCH.

local refused = refusal_while_open_or_rebuilding(ARGV[1])
if refused then
  return refused
end
local SEEN = tonumber(ARGV[2])

local function may_have_pods(key)
  if not SEEN or redis.call('HEXISTS', 'torchq:reservations', key) == 0 then
    return false
  end
  local made = tonumber(redis.call('HGET', 'torchq:work:made', key) or '0')
  return made > SEEN or redis.call('HEXISTS', 'torchq:work:key:' .. key, 'run') == 1
end

local kept = {}
for at = 3, #ARGV do
  forget_entry(ARGV[at])
  if may_have_pods(ARGV[at]) then
    kept[#kept + 1] = ARGV[at]
  else
    release(ARGV[at])
  end
end
return kept
