#!lua flags=allow-oom
--[[ change_key_rate: set, lift, restore, reset or hold a rate limit for one key, for an operator, and put the key back into turns.

Called by: rates.change_key_rate
KEYS[1]  limits
KEYS[2]  overrides of the limit
KEYS[3]  rate of the limit for the key
KEYS[4]  window of the limit for the key
KEYS[5]  hold of the limit for the key
KEYS[6...]  5 per job name that has this limit: turns, blocked, debts, partition of the key, bell
ARGV[1]  name of the limit
ARGV[2]  the key
ARGV[3]  set | lift | restore: as for all keys again | reset: forget what was used and end a hold | hold
ARGV[4]  definition, for set; milliseconds, for hold; otherwise ""
Returns  1, or 0 when no code has defined the limit
Atomic because: a key that may be fetched from again must be in turns.
]]
--@use time bell turns wake_key
local limits, overrides, rate, window, hold = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local name, key, what, value = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FIRST_KEY = 5
if not redis.call('HGET', limits, 'limit:' .. name .. '|code') then
  return 0
end
redis.call('HLEN', overrides)
for at = FIRST_KEY + 1, #KEYS, 5 do
  redis.call('LLEN', KEYS[at + 3])
  for each = at, at + 2 do redis.call('ZCARD', KEYS[each]) end
end

if what == 'set' then
  redis.call('HSET', overrides, key, value)
elseif what == 'lift' then
  redis.call('HSET', overrides, key, 'lifted')
elseif what == 'restore' then
  redis.call('HDEL', overrides, key)
elseif what == 'reset' then
  redis.call('DEL', rate, window, hold)
else
  redis.call('SET', hold, string.format('%.0f', redis_time() + value), 'PX', value)
end
for at = FIRST_KEY + 1, #KEYS, 5 do wake_key(key, unpack(KEYS, at, at + 4)) end
return 1
