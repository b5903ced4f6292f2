#!lua flags=allow-oom
--[[ limit: set the concurrency limit of a job name, or count attempts that were fetched before it had one.

Called by: consume.set_limit, consume.seed_limit
KEYS[1]  limits
KEYS[2]  held set of the name
KEYS[3]  held of one pool, or limits again
KEYS[4]  bell of the name
ARGV[1]  job name
ARGV[2]  the limit, "" to remove it, "same" to leave it unchanged
ARGV[3]  who sets it: code or operator
ARGV[4]  id of the pool whose tokens follow, or ""
ARGV[5...]  tokens
Returns  the limit before, or -1
Atomic because: a token may only be counted while the pool holds it.
]]
--@use bell
local limits, members, held, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name, limit, by, pool = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local before = redis.call('HGET', limits, name)
if pool ~= '' then
  redis.call('SCARD', members)
  for i = 5, #ARGV do
    if redis.call('HEXISTS', held, ARGV[i]) == 1 then
      redis.call('SADD', members, pool .. '/' .. ARGV[i])
    end
  end
end
if limit == '' then
  redis.call('HDEL', limits, name, name .. '|by', name .. '|counting')
  -- Pools set their limit again when it is missing. This field keeps them from undoing an operator's removal.
  if by == 'operator' then redis.call('HSET', limits, name .. '|by', 'lifted') end
  redis.call('DEL', members)
  ring(bell)
elseif limit ~= 'same' then
  redis.call('HSET', limits, name, limit, name .. '|by', by)
  redis.call('HDEL', limits, name .. '|counting')
  ring(bell)
end
return tonumber(before or '-1') or -1
