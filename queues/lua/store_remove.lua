-- Jobs that wait no longer and hold nothing: forget the entries, free charges and ports.
--
-- ARGV: epoch (0: whatever it is), newest resourceVersion of pods the caller knows of (empty: free whatever there may
--       be), then job keys
-- Keys and preludes: store.lua, store_usage.lua; of mark.lua's keys the records and torchq:work:made are read
-- Returns: the keys whose reservation was kept: somebody is at work on them, or has made pods later than that.
-- Errors STORELOST, STALEEPOCH.

local refused = refusal_while_open_or_rebuilding(ARGV[1])
if refused then
  return refused
end
local SEEN = tonumber(ARGV[2])

local function may_have_pods(key)
  if not SEEN then
    return false
  end
  local made = tonumber(redis.call('HGET', 'torchq:work:made', key) or '0')
  return made > SEEN or redis.call('HEXISTS', 'torchq:work:key:' .. key, 'run') == 1
end

local function forget_entry(key, text)
  local queue = cjson.decode(text).queue
  touched[queue] = true
  redis.call('ZREM', 'torchq:order:' .. queue, place(key))
  redis.call('HDEL', 'torchq:entries', key)
  redis.call('HDEL', 'torchq:versions', key)
end

local keys, kept, gone = {}, {}, {}
for at = 3, #ARGV do
  keys[#keys + 1] = ARGV[at]
end
local entries, held = values('torchq:entries', keys), values('torchq:reservations', keys)
for at, key in ipairs(keys) do
  if entries[at] and not gone[key] then
    forget_entry(key, entries[at])
  end
  if held[at] and may_have_pods(key) then
    kept[#kept + 1] = key
  elseif not gone[key] then
    redis.call('HDEL', 'torchq:work:made', key)
    if held[at] then
      release(key, held[at])
    end
  end
  gone[key] = true
end
save_books()
tell_changes()
return kept
