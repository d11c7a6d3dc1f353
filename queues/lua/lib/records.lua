-- Prelude: the records of keys that are not at rest. lib/mark.lua lists what they hold.
--
-- record_of(key)           the key's record, or nil if the key is at rest
-- keep_record(key, record)

local function record_of(key)
  local text = redis.call('HGET', 'torchq:work:records', key)
  return text and cjson.decode(text)
end

local function keep_record(key, record)
  redis.call('HSET', 'torchq:work:records', key, cjson.encode(record))
end
