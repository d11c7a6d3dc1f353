-- Prelude: counts the sums of all cohorts again. Needs lib/store.lua, lib/usage.lua.

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
  local flat, sums, quotas, used = redis.call('HGETALL', 'torchq:rules'), {}, {}, {}
  for at = 1, #flat, 2 do
    local name, rules = rules_of(flat[at + 1])
    if name ~= '' then
      sums[name] = sums[name] or { quota = {}, used = {} }
      add_member(sums[name], rules, redis.call('HGET', 'torchq:usage', flat[at]))
    end
  end
  for name, cohort in pairs(sums) do
    quotas[#quotas + 1] = name
    quotas[#quotas + 1] = amounts_text(cohort.quota)
    used[#used + 1] = name
    used[#used + 1] = amounts_text(cohort.used)
  end
  redis.call('DEL', 'torchq:cohorts', 'torchq:shared')
  write('HSET', 'torchq:cohorts', quotas)
  write('HSET', 'torchq:shared', used)
end
