-- Delete the entries and reservations of jobs, and free their charges and ports.
--
-- ARGV: epoch (0: any), newest resourceVersion of pods that the caller knows (empty: free every reservation), then job
--       keys
-- Keys and preludes: lib/store.lua, lib/usage.lua, lib/records.lua, lib/made.lua
-- Returns: the keys whose reservation stays, because a worker runs them, or has made pods that are newer than that.
-- Errors STORELOST, STALEEPOCH.

local refused = refusal_while_open_or_rebuilding(ARGV[1]) or refusal_after_losses()
if refused then
  return refused
end
local SEEN = tonumber(ARGV[2])

local keys, retained, done = {}, {}, {}
local left, leaving, unmade = {}, {}, {}
for at = 3, #ARGV do
  keys[#keys + 1] = ARGV[at]
end
local entries, reserved = values('torchq:entries', keys), values('torchq:reservations', keys)

local function forget_entry(key, text)
  local queue = cjson.decode(content(text)).queue
  touched[queue] = true
  table.insert(list(leaving, queue), place(tie_of(text), key))
  left[#left + 1] = key
end

local function charged_queues()
  local queues, included = { ALL }, {}
  for at = 1, #keys do
    local queue = reserved[at] and decode(reserved[at]).queue
    if queue and not included[queue] then
      included[queue] = true
      queues[#queues + 1] = queue
    end
  end
  return queues
end

open_books(charged_queues())
for at, key in ipairs(keys) do
  if entries[at] and not done[key] then
    forget_entry(key, entries[at])
  end
  if reserved[at] and may_have_pods(key, SEEN) then
    retained[#retained + 1] = key
  elseif not done[key] then
    unmade[#unmade + 1] = key
    if reserved[at] then
      release(key, reserved[at])
    end
  end
  done[key] = true
end
for queue, some in pairs(leaving) do
  write('ZREM', 'torchq:order:' .. queue, some)
end
write('HDEL', 'torchq:entries', left)
write('HDEL', 'torchq:work:made', unmade)
save_books()
number_change()
return retained
