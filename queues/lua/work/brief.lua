-- Keep briefs for the next runs of their keys. Safe to repeat. lib/mark.lua lists the keys' schema.
--
-- KEYS: none
-- ARGV: 1 seconds for which a brief is kept   then for each key: key, brief
-- Returns: number of briefs.

for i = 2, #ARGV, 2 do
  redis.call('SET', 'torchq:work:brief:' .. ARGV[i], ARGV[i + 1], 'EX', ARGV[1])
end
return (#ARGV - 1) / 2
