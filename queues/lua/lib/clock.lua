-- Prelude: the time.
--
-- clock(override): the number `override`, or the server's time if it is empty; in seconds since 1970. All processes use the
-- server's time; tests pass a time of their own.
-- seconds(time): a time as text with microseconds (tostring would cut it to 14 digits).

local function clock(override)
  if override ~= '' then
    return tonumber(override)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function seconds(time)
  return string.format('%.6f', time)
end
