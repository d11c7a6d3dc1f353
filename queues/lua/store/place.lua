-- Read the position of a waiting job.
--
-- ARGV: epoch (0: any), job key
-- Keys and preludes: lib/store.lua
-- Returns: its entry, the number of jobs of its queue before it, the number of waiting jobs of its queue; nothing if it does
-- not wait.
-- Errors STORELOST, STALEEPOCH.

local refused = refusal(ARGV[1])
if refused then
  return refused
end
local text = redis.call('HGET', 'torchq:entries', ARGV[2])
if not text then
  return {}
end
local place = place(tie_of(text), ARGV[2])
text = content(text)
local order = 'torchq:order:' .. cjson.decode(text).queue
return { text, redis.call('ZRANK', order, place), redis.call('ZCARD', order) }
