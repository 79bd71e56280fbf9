
-- The end of a request: what was charged for it is put right.
--
-- KEYS: the quotas. ARGV: when it was charged; then for each quota its kind, limit, window, capacity, and what is to be
-- charged more, below 0 for what is given back. A quota counts on under what is allowed by now, whatever that was then.

local now, charged_at = clock(), tonumber(ARGV[1])
for index, key in ipairs(KEYS) do
    local base = 1 + (index - 1) * 5
    local more = tonumber(ARGV[base + 5])
    local q = recall(key, now)
    if more > 0 then
        local limit, window = tonumber(ARGV[base + 2]), tonumber(ARGV[base + 3])
        q = q or fresh(ARGV[base + 1], limit, window, tonumber(ARGV[base + 4]), now)
        KINDS[q.kind].charge(q, more)
        keep(key, q)
    elseif q then
        KINDS[q.kind].refund(q, -more, charged_at)
        keep(key, q)
    end
end
return 1
