
-- One decision: check every quota, then charge all of them or none.
--
-- KEYS: the quotas. ARGV: for each its kind, limit, window, capacity, and what the request costs it.
-- Returns whether it passes, the time, and how each quota stood before.

local now = clock()
local quotas, stood, passes = {}, {}, true
for index, key in ipairs(KEYS) do
    local base = (index - 1) * 5
    local kind, limit, window = ARGV[base + 1], tonumber(ARGV[base + 2]), tonumber(ARGV[base + 3])
    local capacity, cost = tonumber(ARGV[base + 4]), tonumber(ARGV[base + 5])
    local q = recall(key, now)
    q = q and adopt(q, kind, limit, window, capacity) or fresh(kind, limit, window, capacity, now)
    stood[index] = line(q)
    passes = passes and KINDS[q.kind].fits(q, cost)
    quotas[index] = {q, cost}
end
for index, key in ipairs(KEYS) do
    local q, cost = unpack(quotas[index])
    if passes and cost > 0 then
        KINDS[q.kind].charge(q, cost)
    end
    if passes or q.changed then -- time must not go on by what is no longer allowed
        keep(key, q)
    end
end
return {passes and 1 or 0, whole(now), unpack(stood)}
