-- Shorten leases and registrations that end later than any that is taken now. There are such ends after the server's clock was
-- set back, or after another server with another clock has taken over. Safe to repeat.
--
-- Preludes: clock (mark lists the keys' schema).
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       2 seconds the longest lease lasts   3 seconds a registration lasts
-- Returns: number of leases and registrations shortened.

local now, shortened = clock(ARGV[1]), 0

local latest = seconds(now + tonumber(ARGV[2]))
for _, key in ipairs(redis.call('ZRANGEBYSCORE', 'torchq:work:leases', '(' .. latest, '+inf')) do
  redis.call('ZADD', 'torchq:work:leases', latest, key)
  shortened = shortened + 1
end

local last = seconds(now + tonumber(ARGV[3]))
local members = redis.call('HGETALL', 'torchq:work:members')
for at = 1, #members, 2 do
  local ends = tonumber(string.match(members[at + 1], '"until":([%d.]+)') or '')
  if ends and ends > tonumber(last) then
    redis.call('HSET', 'torchq:work:members', members[at], (string.gsub(members[at + 1], '"until":[%d.]+', '"until":' .. last)))
    shortened = shortened + 1
  end
end
return shortened
