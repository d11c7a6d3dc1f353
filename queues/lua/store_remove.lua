-- Jobs that wait no longer and hold nothing: forget the entries, free charges and ports.
--
-- ARGV: epoch (0: whatever it is), then job keys
-- Keys and preludes: store.lua
-- Returns: number of keys. Errors STORELOST, STALEEPOCH.

local refused = refusal(ARGV[1])
if refused then
  return refused
end
for at = 2, #ARGV do
  forget_entry(ARGV[at])
  release(ARGV[at])
end
return #ARGV - 1
