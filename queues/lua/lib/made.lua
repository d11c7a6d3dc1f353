-- Prelude: whether a job may have pods that the caller does not know. Needs lib/records.lua. Of lib/mark.lua's keys it reads the
-- records and torchq:work:made.
--
-- may_have_pods(key, seen)   whether a worker runs the key, or has made pods that are newer than `seen`, the newest
--                            resourceVersion of pods that the caller knows (nil: no pods count)

local function may_have_pods(key, seen)
  if not seen then
    return false
  end
  local made = tonumber(redis.call('HGET', 'torchq:work:made', key) or '0')
  if made > seen then
    return true
  end
  local record = record_of(key)
  return record and record.run ~= nil
end
