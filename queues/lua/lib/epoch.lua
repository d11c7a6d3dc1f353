-- Prelude: the epoch of the store, for scripts that write records of work.
--
-- live_epoch(layout): the epoch of a store of this layout; or nil and the error STORELOST, if the store has no epoch or another
-- layout, whose records a process of this layout must not write.
--
-- Keys: torchq:epoch, torchq:layout, both read only; see queues/redis_keys.py

local function live_epoch(layout)
  local answers = redis.call('MGET', 'torchq:epoch', 'torchq:layout')
  if not answers[1] then
    return nil, redis.error_reply('STORELOST no epoch: the queues must be rebuilt first')
  elseif answers[2] ~= layout then
    return nil, redis.error_reply('STORELOST the queues have layout ' .. (answers[2] or 'unknown') .. ', not ' .. layout)
  end
  return answers[1]
end
