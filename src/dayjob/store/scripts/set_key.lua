#!lua flags=allow-oom
--[[ set_key: set the weight, the limit or the pause of one key of a job name, for an operator.

Called by: partitions.set_key
KEYS[1]  key_settings
KEYS[2]  turns
KEYS[3]  blocked
KEYS[4]  debts
KEYS[5]  partition of the key
KEYS[6]  bell
ARGV[1]  the key
ARGV[2]  its weight; here and below: "" to keep it, "-" for the default
ARGV[3]  how many of its jobs may run at once
ARGV[4]  1 to pause it, 0 to resume it
Returns  1 when something changed
Atomic because: the three settings stand in one field, and a key that may be fetched from again must be in turns.
]]
--@use bell turns wake_key
local settings, turns, blocked, debts, partition, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local key, given = ARGV[1], {ARGV[2], ARGV[3], ARGV[4]}

local before = redis.call('HGET', settings, key) or '- - -'
local stored = {string.match(before, '^(%S+) (%S+) (%S+)$')}
for i = 1, 3 do
  stored[i] = given[i] == '' and (stored[i] or '-') or given[i]
end
if stored[3] == '0' then stored[3] = '-' end
local after = table.concat(stored, ' ')
redis.call('LLEN', partition)
redis.call('ZCARD', turns)
redis.call('ZCARD', blocked)
redis.call('ZCARD', debts)
if after == '- - -' then
  redis.call('HDEL', settings, key)
else
  redis.call('HSET', settings, key, after)
end
wake_key(key, turns, blocked, debts, partition, bell)
return after == before and 0 or 1
