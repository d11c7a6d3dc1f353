-- Prelude: what time it is.
--
-- clock(given): `given` as a number, or the server's own time if it is empty; seconds since 1970. All processes agree on the
-- server's time; tests give a stepped one.
-- seconds(time): a time as text, exact to a microsecond (tostring would cut it to 14 digits).

local function clock(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function seconds(time)
  return string.format('%.6f', time)
end
