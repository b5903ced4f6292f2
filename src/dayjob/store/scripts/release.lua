#!lua flags=allow-oom
--[[ release: move jobs that a completed atomic job staged to their queue, or to scheduled.

Called by: children.release
KEYS[1]  released
KEYS[2]  the staged list
KEYS[3]  queue, or scheduled
KEYS[4]  bell, or due
KEYS[5]  known_jobs
ARGV[1]  record of the list in released
ARGV[2]  job name
ARGV[3]  "now", "in" or "at"
ARGV[4]  milliseconds from the completion of the atomic job, or since the epoch; 0 for now
ARGV[5]  milliseconds from the completion until the jobs expire, or 0
ARGV[6]  how many jobs to move at most
Returns  how many jobs are left in the list; 0 if another pool has moved them
Atomic because: a job must be in exactly one place, and two pools may do this at once.
]]
--@use expiry soonest put
local released, list, target, bell, known = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local record, name, mode, amount, span, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local STEP, MOST_BYTES = 50, 1048576

local since = redis.call('ZSCORE', released, record)
if not since then
  return 0
end
local at
if mode == 'in' then at = since + amount end
if mode == 'at' then at = amount end
redis.call(at and 'ZCARD' or 'LLEN', target)
local payloads, bytes = {}, 0
while #payloads < most and bytes < MOST_BYTES do
  local some = redis.call('LRANGE', list, #payloads, math.min(#payloads + STEP, most) - 1)
  if #some == 0 then break end
  for i = 1, #some do
    payloads[#payloads + 1] = span > 0 and with_expiry(some[i], since + span) or some[i]
    bytes = bytes + #some[i]
  end
end
if #payloads > 0 then
  put_jobs(target, bell, payloads, at)
  redis.call('LTRIM', list, #payloads, -1)
  redis.pcall('SADD', known, name)
end
local left = redis.call('LLEN', list)
if left == 0 then
  redis.call('ZREM', released, record)
end
return left
