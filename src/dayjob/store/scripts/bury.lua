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

-- A key holds the id of its job; one that an enqueuer of gocraft made for a job that never started holds "1" or JSON.
local function owns(payload, id, holder)
  if holder == id then return true end
  if type(holder) ~= 'string' or not (holder == '1' or string.sub(holder, 1, 1) == '{') then return false end
  return not (string.find(payload, '"attempt":', 1, true) or string.find(payload, '"fails":', 1, true))
end
if not redis.call('ZSCORE', source, member) then
  return 0
end
redis.call('ZCARD', dead)

local time = redis.call('TIME')
redis.call('ZADD', dead, time[1], payload)
redis.call('ZREM', source, member)
if unique ~= dead and owns(member, id, redis.pcall('GET', unique)) then
  redis.call('DEL', unique)
end
redis.pcall('HINCRBY', totals, 'dead:' .. name, 1)
return 1
