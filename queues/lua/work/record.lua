-- Read the record of an RQ job, unless it is longer than any of ours: whoever wrote it must not fill our memory.
--
-- KEYS: none
-- ARGV: 1 name of the record   2 most bytes of all fields together
--       then the fields
-- Returns: their length in bytes together, -1 if it is no hash; then, unless there are too many, their values.

local bytes = 0
for i = 3, #ARGV do
  local length = redis.pcall('HSTRLEN', ARGV[1], ARGV[i])
  if type(length) == 'table' then
    return {-1}
  end
  bytes = bytes + length
end
if bytes > tonumber(ARGV[2]) then
  return {bytes}
end
return {bytes, redis.call('HMGET', ARGV[1], unpack(ARGV, 3))}
