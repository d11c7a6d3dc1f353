-- Keep the newest report of pods, a batch at once.
--
-- Preludes: clock.
-- KEYS: none
-- ARGV: 1 now, seconds; empty: the server's time
--       2 seconds that the reports of a job outlive the last of them
--       then for each report: key (namespace/name/uid of the job), pod, seconds since it arrived, step (empty: not said),
--       number of the request to save that it answers ("0": none), JSON with the rest
-- Returns: nothing.
--
-- Keys:
--   torchq:reports:<key>  hash  pod -> "<step> <at> <moved> <rate> <checkpoint> <JSON>": when the report came and when its step
--                               moved last, steps per second at the last move forward ("-": unknown), the highest number of a
--                               request to save. Expires; it may be lost at any moment, alone or with everything else

-- A report that does not say its step leaves the step of its pod as it was. At 100 % the step is the last one, if the report
-- before has said how many there are. A percentage that is another one moves the step as well.
-- A lost answer makes the client send the batch again. The second time its steps have not moved.
local PARTS = '^(%d+) (%S+) (%S+) (%S+) (%d+) ?(.*)$'

local function larger(one, other)  -- compared as numbers, kept as texts: Lua's numbers would lose digits
  return tonumber(one) > tonumber(other) and one or other
end

local function progress(rest)  -- how far a training is by its own estimate; empty if the JSON does not say it
  local readable, values = pcall(cjson.decode, rest)
  local found = readable and type(values) == 'table' and values.progress
  return type(found) == 'table' and found or {}
end

local function is_number(value)
  return type(value) == 'number'
end

local function missing_step(rest, step_before, rest_before)
  local steps = progress(rest_before).steps
  local is_last = progress(rest).percent == 100 and is_number(steps) and steps > tonumber(step_before)
  return is_last and string.format('%d', steps) or step_before
end

local function has_moved(rest, rest_before)
  local percent = progress(rest).percent
  return is_number(percent) and percent ~= progress(rest_before).percent
end

local now = clock(ARGV[1])
for i = 3, #ARGV, 6 do
  local name, pod, step, checkpoint = 'torchq:reports:' .. ARGV[i], ARGV[i + 1], ARGV[i + 3], ARGV[i + 4]
  local at, rate = now - tonumber(ARGV[i + 2]), '-'
  local moved = at
  local before, rest = redis.call('HGET', name, pod) or '', ARGV[i + 5]
  local step_before, at_before, moved_before, rate_before, checkpoint_before, rest_before = string.match(before, PARTS)
  if step == '' then
    step = missing_step(rest, step_before or '0', rest_before or '')
  end
  if step_before then
    at = math.max(at, tonumber(at_before))
    moved = at
    checkpoint = larger(checkpoint, checkpoint_before)
    if step == step_before then
      rate = rate_before
      moved = has_moved(rest, rest_before) and at or tonumber(moved_before)
    elseif tonumber(step) > tonumber(step_before) and at > tonumber(moved_before) then
      rate = string.format('%.6g', (tonumber(step) - tonumber(step_before)) / (at - tonumber(moved_before)))
    end
  end
  redis.call('HSET', name, pod, table.concat({step, seconds(at), seconds(moved), rate, checkpoint, rest}, ' '))
  redis.call('EXPIRE', name, ARGV[2])
end
