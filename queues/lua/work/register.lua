-- Register a live worker with its number of threads. With 0 threads, take it off the list. Safe to repeat.
--
-- Preludes: clock, records, mark (which lists the keys' schema).
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       2 seconds until the registration expires
--       3 worker   4 threads
-- Returns: nothing.

if tonumber(ARGV[4]) > 0 then
  redis.call('ZADD', 'torchq:work:workers', seconds(clock(ARGV[1]) + tonumber(ARGV[2])), ARGV[3])
  redis.call('HSET', 'torchq:work:threads', ARGV[3], ARGV[4])
else
  redis.call('ZREM', 'torchq:work:workers', ARGV[3])
  redis.call('HDEL', 'torchq:work:threads', ARGV[3])
end
