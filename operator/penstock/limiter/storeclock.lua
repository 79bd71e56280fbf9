
-- The store's own clock in microseconds: the only one that all replicas share.
local function clock()
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
