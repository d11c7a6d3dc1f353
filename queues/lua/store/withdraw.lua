-- Delete waiting entries of kind "grow". Reservations stay, and so do entries of another kind.
--
-- ARGV: epoch (0: any), then job keys
-- Keys and preludes: lib/store.lua
-- Returns: number of deleted entries. Errors STORELOST, STALEEPOCH.

local refused = refusal(ARGV[1])
if refused then
  return refused
end
local keys, left, leaving = {}, {}, {}
for at = 2, #ARGV do
  keys[#keys + 1] = ARGV[at]
end
for at, text in ipairs(values('torchq:entries', keys)) do
  local entry = text and cjson.decode(content(text))
  if entry and entry.kind == 'grow' and not left[keys[at]] then
    left[#left + 1], left[keys[at]] = keys[at], true
    touched[entry.queue] = true
    table.insert(list(leaving, entry.queue), place(tie_of(text), keys[at]))
  end
end
for queue, places in pairs(leaving) do
  write('ZREM', 'torchq:order:' .. queue, places)
end
write('HDEL', 'torchq:entries', left)
number_change()
return #left
