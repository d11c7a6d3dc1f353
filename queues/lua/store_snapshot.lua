-- Everything `choose` needs, read at one moment.
--
-- ARGV: epoch (0: whatever it is), how many heads of each queue
-- Keys and preludes: store.lua
-- Returns: epoch, revision, pool, flat usage of the pool, clock, and a list of queues, each one: settings, account,
-- overtaken, flat usage, number of waiting entries, flat list of version and entry of the heads. What is missing is "".
-- Errors STORELOST, STALEEPOCH.

local function text(value)
  return value or ''
end

local function heads(queue, most)
  local found = {}
  if most < 1 then
    return found
  end
  for _, member in ipairs(redis.call('ZRANGE', 'torchq:order:' .. queue, 0, most - 1)) do
    local key = string.gsub(member, '!', '/')
    found[#found + 1] = redis.call('HGET', 'torchq:versions', key)
    found[#found + 1] = redis.call('HGET', 'torchq:entries', key)
  end
  return found
end

local function view(queue, spec, most)
  return {
    spec,
    text(redis.call('HGET', 'torchq:accounts', queue)),
    text(redis.call('HGET', 'torchq:overtaken', queue)),
    redis.call('HGETALL', 'torchq:usage:' .. queue),
    redis.call('ZCARD', 'torchq:order:' .. queue),
    heads(queue, most),
  }
end

local refused = refusal(ARGV[1])
if refused then
  return refused
end
local queues, flat = {}, redis.call('HGETALL', 'torchq:queues')
for at = 1, #flat, 2 do
  queues[#queues + 1] = view(flat[at], flat[at + 1], tonumber(ARGV[2]))
end
return {
  redis.call('GET', 'torchq:epoch'),
  text(redis.call('GET', 'torchq:revision')),
  text(redis.call('GET', 'torchq:pool')),
  redis.call('HGETALL', 'torchq:usage'),
  text(redis.call('GET', 'torchq:clock')),
  queues,
}
