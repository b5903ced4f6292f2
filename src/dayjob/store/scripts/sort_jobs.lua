#!lua flags=allow-oom
--[[ sort_jobs: move the oldest jobs of a queue to the partitions of their keys.

Called by: partitions.sort_jobs
KEYS[1]  limits
KEYS[2]  queue
KEYS[3]  turns
KEYS[4]  blocked
KEYS[5]  debts
KEYS[6]  bell
KEYS[7...]  the partition of each key
ARGV[1]  job name
ARGV[2]  the arguments by which the caller computed the keys
ARGV[3]  number of keys
ARGV[4...]  the keys, then 2 per job, the oldest first: key index, payload as it was read
Returns  how many were moved; it ends at the first that is not the oldest any more
Atomic because: a job must be in exactly one place, several pools may sort at once, and jobs of a key must keep their order.
]]
--@use bell turns
local limits, queue, turns, blocked, debts, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local name, by, keys = ARGV[1], ARGV[2], tonumber(ARGV[3])
local FIRST_KEY, FIRST_ARG = 6, 3

local rule = redis.call('HGET', limits, name)
if not rule or string.match(rule, ' |(%S+) ') ~= by then
  return 0
end
redis.call('LLEN', queue)
redis.call('ZCARD', turns)
redis.call('ZCARD', blocked)
redis.call('ZCARD', debts)
for k = 1, keys do redis.call('LLEN', KEYS[FIRST_KEY + k]) end

local moved, used, is_used = 0, {}, {}
for i = FIRST_ARG + keys + 1, #ARGV, 2 do
  if redis.call('LINDEX', queue, -1) ~= ARGV[i + 1] then break end
  local k = tonumber(ARGV[i])
  redis.call('LPUSH', KEYS[FIRST_KEY + k], ARGV[i + 1])
  redis.call('RPOP', queue)
  if not is_used[k] then
    is_used[k] = true
    used[#used + 1] = ARGV[FIRST_ARG + k]
  end
  moved = moved + 1
end
if moved > 0 then
  take_turns(turns, blocked, debts, used)
  ring(bell)
end
return moved
