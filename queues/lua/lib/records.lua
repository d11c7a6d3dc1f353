-- Prelude: the records of keys that wait or that a worker has. lib/mark.lua lists their fields.
--
-- record_of(key)           the key's record, or nil if it has none
-- keep_record(key, record) writes the key's record

local function record_of(key)
  local text = redis.call('HGET', 'torchq:work:records', key)
  return text and cjson.decode(text)
end

local function keep_record(key, record)
  redis.call('HSET', 'torchq:work:records', key, cjson.encode(record))
end
