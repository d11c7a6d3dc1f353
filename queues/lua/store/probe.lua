-- Write a key, so that a server that takes no writes says so.
--
-- KEYS: none
-- ARGV: none
-- Keys: torchq:probe, which expires soon and which nobody reads.
-- Returns: 1. The error is the server's.

redis.call('SET', 'torchq:probe', '', 'EX', 60)
return 1
