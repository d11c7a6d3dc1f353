-- Prelude: the next waiting entries of queues. Needs lib/store.lua.
--
-- line_up(queues, skipped, most)   Reads up to `most` entries of each queue, leaving out the first skipped[queue] (nil: none).
--                                  Returns {waiting, first, texts}: how many wait in each queue; where those of each begin in
--                                  texts, and where the last one's end; version, tie-break and JSON of each entry, as it is
--                                  kept.
-- entries_of(line, at, parts, size)  appends these three of the entries of the queue at a place to parts of a text, which are so
--                                  many, with commas between them; how many parts there are then. What is missing is null.
-- joined(texts, parts, size, most)   once there are at least so many parts, joins them to a further text; how many there are then

local function line_up(queues, skipped, most)
  local waiting, first, keys, count = {}, {}, {}, 0
  for at, queue in ipairs(queues) do
    local order, from = 'torchq:order:' .. queue, skipped[queue] or 0
    waiting[at], first[at] = redis.call('ZCARD', order), count + 1
    if waiting[at] > from and most > 0 then
      for _, place in ipairs(redis.call('ZRANGE', order, from, from + most - 1)) do
        count = count + 1
        keys[count] = key_of(place)
      end
    end
  end
  first[#queues + 1] = count + 1
  local texts = values('torchq:entries', keys)
  for at = 1, count do
    texts[at] = texts[at] or 'null,null,null'
  end
  return { waiting = waiting, first = first, texts = texts }
end

local function entries_of(line, at, parts, size)
  local texts = line.texts
  for each = line.first[at], line.first[at + 1] - 1 do
    parts[size + 1], parts[size + 2] = texts[each], ','
    size = size + 2
  end
  return line.first[at] < line.first[at + 1] and size - 1 or size
end

-- Some 8 KB are joined in one go; of more, Lua makes texts in between, and it reads every text that it makes from end to end.
local TOGETHER = 64
local function joined(texts, parts, size, most)
  if size < most then
    return size
  end
  texts[#texts + 1] = table.concat(parts, '', 1, size)
  return 0
end
