-- Prelude: whether there is room for a demand. Needs lib/store.lua and lib/usage.lua.
--
-- A demand is {names, sizes}: two lists of resource names and their amounts.
-- over_limits(book, demand)   "quota" or "cohort", whichever has no room for the demand, or nil. The caller must have read the book's
--                             sums (used_of).
-- over_pool(pool, demand)     "pool" if the pool {resource: amount} has no room for the demand, or nil

local JOBS, OTHERS, DEVICES = 'jobs', '*', '.deviceclass.resource.k8s.io/devices' -- as in crds/resources/amounts.py

-- Return the limit of the queue that has no room for a demand, or nil.
local function over_limits(queue_book, demand)
  local names, sizes, quota, used = demand.names, demand.sizes, queue_book.quota, queue_book.used
  local shared, over_cohort = queue_book.cohort, false
  for at = 1, #names do
    local name, amount = names[at], sizes[at]
    local most = quota[name]
    if most and amount > 0 then
      local borrowed = shared and (queue_book.borrowing[name] or math.huge) or 0
      if (used[name] or 0) + amount > most + borrowed then
        return 'quota'
      end
      over_cohort = over_cohort or shared and (shared.used[name] or 0) + amount > (shared.quota[name] or 0)
    end
  end
  return over_cohort and 'cohort' or nil
end

-- Return "pool" if the pool has no room for a demand, or nil.
local function over_pool(pool, demand)
  local used, others = used_of(books[ALL]), pool[OTHERS]
  for at = 1, #demand.names do
    local name = demand.names[at]
    local most = pool[name] or name ~= JOBS and name:sub(-#DEVICES) ~= DEVICES and others
    if most and demand.sizes[at] > 0 and (used[name] or 0) + demand.sizes[at] > most then
      return 'pool'
    end
  end
  return nil
end
