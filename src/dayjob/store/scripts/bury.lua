#!lua flags=allow-oom
--[[ bury: move a job from scheduled or retry to dead, at an operator's request.

Called by: operate.kill
KEYS[1]  scheduled or retry
KEYS[2]  dead
KEYS[3]  totals
KEYS[4]  unique key; without one, dead again
ARGV[1]  member, exactly as the operator's client read it
ARGV[2]  payload for dead
ARGV[3]  job name
ARGV[4]  job id where there is a unique key, else ""
Returns  1 when it was moved, 0 when it was no longer there
Atomic because: a job must be in exactly one place.
]]
local source, dead, totals, unique = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, payload, name, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- dayjob stores the job id in a unique key. gocraft's enqueuers store "1" or the job's JSON, which belongs to this job
-- as long as it has not been attempted.
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
