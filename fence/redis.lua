#!lua name=fencelock
-- Fencelock's fence for Redis (7 and later): a function library that keeps the highest token seen in a key of its
-- own, and refuses a lower one. Load it once, on every primary:
--
--     redis-cli -x FUNCTION LOAD REPLACE < redis.lua
--
-- The holder claims before its first read, and lets the library do each write:
--
--     FCALL fencelock_claim 1 fence:{INV-55102} 417
--     FCALL fencelock_write 2 fence:{INV-55102} invoice:{INV-55102} 417 HSET state paid
--
-- fencelock_write does COMMAND KEY ARGS... with the second key if the token was claimed and is still the highest.
-- Check and write are one step, since Redis runs one function at a time; a check before a MULTI would not be. An equal
-- token passes. The braces keep both keys on one shard of a cluster.
--
-- The fence is as durable as the data beside it: after a failover that lost writes an old token can pass until the
-- next claim, and the writes that it would spoil may be lost as well.

-- Tokens are below 2^53, so Lua's numbers hold them exactly.
local function parse(token)
    if not token or not string.match(token, '^[1-9]%d*$') or tonumber(token) > 2 ^ 53 then
        return nil
    end
    return tonumber(token)
end

local function refuse(kind, key, token, what)
    return redis.error_reply(string.format('%s token %s for "%s" %s', kind, token, key, what))
end

local function stale(key, token, seen)
    return refuse('FENCELOCK_STALE', key, token,
                  'is stale: ' .. seen .. ' has been seen; acquire the lock again before anything else')
end

local function claim(keys, args)
    local token = parse(args[1])
    if #keys ~= 1 or #args ~= 1 or not token then
        return redis.error_reply('FENCELOCK_ARGUMENT a claim needs one key and a token above 0')
    end
    local seen = redis.call('GET', keys[1])
    if seen and tonumber(seen) > token then
        return stale(keys[1], args[1], seen)
    end
    redis.call('SET', keys[1], args[1])
    return redis.status_reply('OK')
end

local function write(keys, args)
    local token = parse(args[1])
    if #keys ~= 2 or #args < 2 or not token then
        return redis.error_reply('FENCELOCK_ARGUMENT a write needs two keys, a token above 0 and a command')
    end
    local seen = redis.call('GET', keys[1])
    if seen and tonumber(seen) > token then
        return stale(keys[1], args[1], seen)
    end
    if not seen or tonumber(seen) < token then
        return refuse('FENCELOCK_UNCLAIMED', keys[1], args[1], 'was not claimed; claim before the first read')
    end
    return redis.call(args[2], keys[2], unpack(args, 3))
end

redis.register_function('fencelock_claim', claim)
redis.register_function('fencelock_write', write)
