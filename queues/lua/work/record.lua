-- Read the record of an RQ job, unless it is longer than any record of torchq. Another program may have written it, and it must
-- not fill the worker's memory.
--
-- KEYS: none
-- ARGV: 1 name of the record   2 the most bytes of all fields together
--       then the fields
-- Returns: the length of all fields in bytes, -1 if the key is not a hash; then, unless that is too long, the values of the
-- fields.

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
