-- Prelude: the next waiting entries of queues. Needs lib/store.lua.
--
-- line_up(queues, skipped, most)     reads up to `most` entries of each queue, without the first skipped[queue] (nil: none).
--                                    Returns {waiting, first, texts}. waiting: the number of waiting entries of each queue.
--                                    first: the index in texts of each queue's first entry, and one after the last queue.
--                                    texts: version, tie-break and JSON of each entry, as stored.
-- entries_of(line, at, parts, size)  appends version, tie-break and JSON of the entries of queue number `at` to the list parts,
--                                    which has `size` items, with commas between them. A missing entry is null. Returns the
--                                    new size of parts.
-- joined(texts, parts, size, most)   if parts has at least `most` items, joins them, appends the text to texts, and returns 0;
--                                    otherwise returns size

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
  for index = line.first[at], line.first[at + 1] - 1 do
    parts[size + 1], parts[size + 2] = texts[index], ','
    size = size + 2
  end
  return line.first[at] < line.first[at + 1] and size - 1 or size
end

-- About 8 KB are joined at once. For more, Lua makes intermediate texts, and it reads each text that it makes completely.
local TOGETHER = 64
local function joined(texts, parts, size, most)
  if size < most then
    return size
  end
  texts[#texts + 1] = table.concat(parts, '', 1, size)
  return 0
end
