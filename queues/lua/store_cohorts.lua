-- Prelude: the sums of cohorts, counted anew. Needs store.lua, store_usage.lua.

local function add(amounts, name, amount)
  amounts[name] = (amounts[name] or 0) + amount
end

local function add_member(sums, rules, usage)
  local used = usage and cjson.decode(usage) or {}
  for name, most in pairs(rules.quota) do
    add(sums.quota, name, most)
    add(sums.used, name, used[name] or 0)
  end
end

local function count_cohorts()
  local flat, sums, texts = redis.call('HGETALL', 'torchq:rules'), {}, {}
  for at = 1, #flat, 2 do
    local rules = decode(flat[at + 1])
    if rules.cohort ~= '' then
      sums[rules.cohort] = sums[rules.cohort] or { quota = {}, used = {} }
      add_member(sums[rules.cohort], rules, redis.call('HGET', 'torchq:usage', flat[at]))
    end
  end
  for name, each in pairs(sums) do
    texts[#texts + 1] = name
    texts[#texts + 1] = cohort_text(each)
  end
  redis.call('DEL', 'torchq:cohorts')
  write('HSET', 'torchq:cohorts', texts)
end
