-- Read the reports of jobs at one moment.
--
-- Preludes: clock.
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       then the keys (namespace/name/uid) of the jobs
-- Returns: list: the time in seconds; then for each key a flat list of pod, record (reports/keep.lua).

local answer = {seconds(clock(ARGV[1]))}
for i = 2, #ARGV do
  answer[i] = redis.call('HGETALL', 'torchq:reports:' .. ARGV[i])
end
return answer
