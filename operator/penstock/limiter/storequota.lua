-- The four rate algorithms as a shared store counts them: what `penstock.admission` does in `tokenbucket`,
-- `leakybucket`, `fixedwindow` and `slidingwindow`, with the same answers to the microsecond.
--
-- A quota is one key. Its value is a line of whole numbers, so that nothing is ever rounded away:
--
--     kind  at  limit  window  capacity | level, fraction            T: tokens in the bucket
--                                       | backlog, fraction          L: tokens that wait to drain
--                                       | begins, used, debt         F
--                                       | slice, debt, 33 counts     S
--
-- Times are microseconds of the store's clock, which stands still when it is set back. A fraction is counted in parts of
-- one token divided by the window, so each microsecond adds a whole number of them. Numbers of Lua are exact up to 2^53.

local SLICES = 32
local KEPT = SLICES + 1
local GRACE_MILLISECONDS = 1000
local LONGEST_MILLISECONDS = 1e12

local function whole(number)
    return string.format('%.0f', number)
end

-- x * y / z, rounded down, and what is left over; digit by digit, because the product may be too large to be exact.
local function share(x, y, z)
    local times = math.floor(x / z)
    x = x - times * z
    local quotient, rest, scale = 0, 0, 1
    while scale * 1000 <= y do
        scale = scale * 1000
    end
    while scale >= 1 do
        local product = rest * 1000 + x * (math.floor(y / scale) % 1000)
        local part = math.floor(product / z)
        quotient = quotient * 1000 + part
        rest = product - part * z
        scale = scale / 1000
    end
    return times * y + quotient, rest
end

-- ---- the two buckets: `a` whole tokens and `b` parts of one

local function normalise(q)
    if q.b >= q.window then
        q.a, q.b = q.a + 1, q.b - q.window
    elseif q.b < 0 then
        q.a, q.b = q.a - 1, q.b + q.window
    end
    if q.kind == 'T' and q.a >= q.capacity then
        q.a, q.b = q.capacity, 0
    elseif q.kind == 'L' and q.a < 0 then
        q.a, q.b = 0, 0
    end
end

local bucket = {}

function bucket.fresh(q)
    q.a, q.b = (q.kind == 'T') and q.capacity or 0, 0
end

function bucket.roll(q, now)
    local gained, part = share(now - q.at, q.limit, q.window)
    local sign = (q.kind == 'T') and 1 or -1
    q.a, q.b = q.a + sign * gained, q.b + sign * part
    normalise(q)
end

function bucket.used(q)
    if q.kind == 'T' then
        return q.capacity - q.a
    end
    return q.a + ((q.b > 0) and 1 or 0)
end

function bucket.fits(q, cost)
    if q.kind == 'T' then
        return cost <= q.a
    end
    return bucket.used(q) + cost <= q.capacity
end

function bucket.charge(q, cost)
    q.a = q.a + ((q.kind == 'T') and -cost or cost)
end

function bucket.refund(q, cost)
    bucket.charge(q, -cost)
    normalise(q)
end

function bucket.adopt(q, window)
    local scaled, rest = share(q.b, window, q.window)
    if q.kind == 'L' and rest > 0 then
        scaled = scaled + 1
    end
    q.b, q.window = scaled, window
    normalise(q)
end

function bucket.ticks_left(q)
    return (bucket.used(q) + 1) * q.window / q.limit
end

-- ---- the fixed window

local fixed = {}

function fixed.fresh(q)
    q.begins, q.used, q.debt = q.at - q.at % q.window, 0, 0
end

local function move_debt(q)
    local fits = math.min(q.debt, math.max(0, q.limit - q.used))
    q.used, q.debt = q.used + fits, q.debt - fits
    return fits
end

function fixed.roll(q, now)
    local passed = math.floor((now - q.begins) / q.window)
    if passed > 0 then
        q.begins = q.begins + passed * q.window
        q.debt = math.max(0, q.debt - (passed - 1) * q.limit)
        q.used = 0
        move_debt(q)
    end
end

function fixed.used(q)
    return q.used + q.debt
end

function fixed.fits(q, cost)
    return q.used + q.debt + cost <= q.limit
end

function fixed.charge(q, cost)
    q.debt = q.debt + cost
    move_debt(q)
end

function fixed.refund(q, cost, charged_at)
    local paid = math.min(cost, q.debt)
    q.debt = q.debt - paid
    if charged_at >= q.begins then
        q.used = math.max(0, q.used - (cost - paid))
    end
end

function fixed.adopt(q, window)
    q.window = window
    q.begins = q.at - q.at % window
    move_debt(q)
end

function fixed.ticks_left(q)
    return (2 + q.debt / q.limit) * q.window
end

-- ---- the sliding window

local sliding = {}

local function place(slice)
    return slice % KEPT + 1
end

local function clear(q)
    q.counts, q.used = {}, 0
    for index = 1, KEPT do
        q.counts[index] = 0
    end
end

function sliding.fresh(q)
    q.slice, q.debt = math.floor(q.at / (q.window / SLICES)), 0
    clear(q)
end

local function settle_debt(q)
    local fits = move_debt(q)
    q.counts[place(q.slice)] = q.counts[place(q.slice)] + fits
end

local function begin_slice(q)
    q.slice = q.slice + 1
    q.used = q.used - q.counts[place(q.slice)]
    q.counts[place(q.slice)] = 0
    if q.debt > 0 then
        settle_debt(q)
    end
end

function sliding.roll(q, now)
    local target = math.floor(now / (q.window / SLICES))
    while q.slice < target do
        local left = target - q.slice
        if q.debt > 0 then
            -- whole turns of the ring that each only shrink the debt by the limit pass at once
            if left >= KEPT and q.used == q.limit then
                local turns = math.min(math.floor(left / KEPT), math.floor(q.debt / q.limit))
                q.slice, q.debt = q.slice + turns * KEPT, q.debt - turns * q.limit
            end
            if q.slice < target then
                begin_slice(q)
            end
        elseif left >= KEPT or q.used == 0 then
            clear(q)
            q.slice = target
        else
            begin_slice(q)
        end
    end
end

sliding.used = fixed.used
sliding.fits = fixed.fits

function sliding.charge(q, cost)
    q.debt = q.debt + cost
    settle_debt(q)
end

function sliding.refund(q, cost, charged_at)
    local paid = math.min(cost, q.debt)
    q.debt = q.debt - paid
    local slice = math.floor(math.min(charged_at, q.at) / (q.window / SLICES))
    if q.slice - slice < KEPT then
        local back = math.min(cost - paid, q.counts[place(slice)])
        q.counts[place(slice)] = q.counts[place(slice)] - back
        q.used = q.used - back
    end
end

function sliding.adopt(q, window)
    if window ~= q.window then
        local used = q.used
        q.window = window
        q.slice = math.floor(q.at / (window / SLICES))
        clear(q)
        q.used = used
        q.counts[place(q.slice)] = used
    end
    settle_debt(q)
end

function sliding.ticks_left(q)
    return (2 + 2 * q.debt / q.limit) * q.window
end

-- ---- one quota, whatever it is

local KINDS = {T = bucket, L = bucket, F = fixed, S = sliding}

local function fresh(kind, limit, window, capacity, now)
    local q = {kind = kind, at = now, limit = limit, window = window, capacity = capacity}
    KINDS[kind].fresh(q)
    return q
end

local function parse(text)
    local kind, numbers = string.sub(text, 1, 1), {}
    for number in string.gmatch(string.sub(text, 2), '%S+') do
        numbers[#numbers + 1] = tonumber(number)
    end
    local q = {kind = kind, at = numbers[1], limit = numbers[2], window = numbers[3], capacity = numbers[4]}
    if kind == 'F' then
        q.begins, q.used, q.debt = numbers[5], numbers[6], numbers[7]
    elseif kind == 'S' then
        q.slice, q.debt, q.counts, q.used = numbers[5], numbers[6], {}, 0
        for index = 1, KEPT do
            q.counts[index] = numbers[6 + index]
            q.used = q.used + q.counts[index]
        end
    else
        q.a, q.b = numbers[5], numbers[6]
    end
    return q
end

local function line(q)
    local found = {q.kind, whole(q.at), whole(q.limit), whole(q.window), whole(q.capacity)}
    local function add(number)
        found[#found + 1] = whole(number)
    end
    if q.kind == 'F' then
        add(q.begins) add(q.used) add(q.debt)
    elseif q.kind == 'S' then
        add(q.slice) add(q.debt)
        for index = 1, KEPT do
            add(q.counts[index])
        end
    else
        add(q.a) add(q.b)
    end
    return table.concat(found, ' ')
end

-- Return what a key holds as of now, nil for nothing.
local function recall(key, now)
    local text = redis.call('GET', key)
    if not text then
        return nil
    end
    local q = parse(text)
    if now > q.at then
        KINDS[q.kind].roll(q, now)
        q.at = now
    end
    return q
end

-- Return it as counted on under what is allowed now; what is counted stays counted.
local function adopt(q, kind, limit, window, capacity)
    if q.kind ~= kind then
        local used = KINDS[q.kind].used(q)
        local other = fresh(kind, limit, window, capacity, q.at)
        KINDS[kind].charge(other, used)
        other.changed = true
        return other
    end
    if q.limit ~= limit or q.window ~= window or q.capacity ~= capacity then
        q.limit, q.capacity = limit, capacity
        KINDS[kind].adopt(q, window)
        q.changed = true
    end
    return q
end

-- Keep it until everything has come back to it: then it is as good as a fresh one.
local function keep(key, q)
    local milliseconds = math.ceil(KINDS[q.kind].ticks_left(q) / 1000) + GRACE_MILLISECONDS
    redis.call('SET', key, line(q), 'PX', whole(math.min(milliseconds, LONGEST_MILLISECONDS)))
end
