#!lua flags=allow-oom
--[[ change_rule: set which rate limits a job name has, and what one of its jobs costs.

Called by: rates.change_rule
KEYS[1]  limits
KEYS[2]  held set of the name
KEYS[3]  bell of the name
KEYS[4]  parked
ARGV[1]  job name
ARGV[2]  the rule: cost and names of limits, separated by spaces; "" for none
Returns  1
Atomic because: the rule stands behind the concurrency limit of the name in one field, and neither may undo the other.
]]
--@use bell
local limits, members, bell, parked = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name, rule = ARGV[1], ARGV[2]
-- As in change_limit: a number too high to limit anything. Every exchange then counts the attempts of the name.
local UNLIMITED = '1e6'

local stored = redis.call('HMGET', limits, name, name .. '|counting')
local number = string.match(stored[1] or '', '^%S+') or UNLIMITED
-- A name with keys and no limit of its own needs no count of its attempts.
if string.find(rule, '|%S+ %d') and number == UNLIMITED and not stored[2] then
  number = '-'
elseif number == '-' then
  number = UNLIMITED
end
if number == '-' then redis.call('DEL', members) end
if rule ~= '' then
  redis.call('HSET', limits, name, number .. ' ' .. rule)
elseif number ~= UNLIMITED or stored[2] then
  redis.call('HSET', limits, name, number)
else
  redis.call('HDEL', limits, name)
  redis.call('DEL', members)
end
redis.pcall('ZREM', parked, name)
ring(bell)
return 1
