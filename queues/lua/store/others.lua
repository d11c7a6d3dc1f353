-- Read waiting entries of a queue that ask for other demands than those that the caller knows. Changes nothing.
--
-- ARGV: 1 epoch (0: any)   2 queue   3 number of first entries to leave out   4 number of entries to look at   5 the most entries
--       to return   6... known demands, as the JSON of entries has them
-- Keys and preludes: lib/store.lua, lib/heads.lua
-- Returns: JSON text: list of the queue, the number of its first entries that were left out or looked at, the number of waiting
-- entries, flat list of version, tie-break and entry of those that were found.
-- Errors STORELOST, STALEEPOCH.

local refused = refusal(ARGV[1])
if refused then
  return refused
end
local QUEUE, AFTER, LOOKED_AT, MOST = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local known = {}
for at = 6, #ARGV do
  known[ARGV[at]] = true
end

local line = line_up({ QUEUE }, { [QUEUE] = AFTER }, LOOKED_AT)
local found, looked_at = {}, #line.texts
for at, text in ipairs(line.texts) do
  if not known[string.match(text, '"demand":(%b{})')] then
    found[#found + 1] = text
    if #found == MOST then
      looked_at = at
      break
    end
  end
end
return '[' .. quoted(QUEUE) .. ',' .. whole(AFTER + looked_at) .. ',' .. whole(line.waiting[1]) .. ',['
  .. table.concat(found, ',') .. ']]'
