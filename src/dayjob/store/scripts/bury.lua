#!lua flags=allow-oom
--[[ bury: move a job from scheduled or retry to dead, because an operator says so.

Called by: operate.kill
KEYS[1]  scheduled or retry
KEYS[2]  dead
KEYS[3]  totals
KEYS[4]  unique key, or dead again where there is none
ARGV[1]  member as it was seen
ARGV[2]  payload for dead
ARGV[3]  job name
ARGV[4]  job id where there is a unique key, else ""
Returns  1 when it was there, else 0
Atomic because: a job must be in exactly one place.
]]
local source, dead, totals, unique = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, payload, name, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if not redis.call('ZSCORE', source, member) then
  return 0
end
redis.call('ZCARD', dead)

local time = redis.call('TIME')
redis.call('ZADD', dead, string.format('%d.%03d', time[1], math.floor(time[2] / 1000)), payload)
redis.call('ZREM', source, member)
if id ~= '' and redis.pcall('GET', unique) == id then
  redis.call('DEL', unique)
end
redis.pcall('HINCRBY', totals, 'dead:' .. name, 1)
return 1
