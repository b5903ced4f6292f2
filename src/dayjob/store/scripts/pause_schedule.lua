#!lua flags=allow-oom
--[[ pause_schedule: pause a periodic schedule, or resume it.

Called by: operate.pause_schedule, operate.resume_schedule
KEYS[1]  periodic
ARGV[1]  schedule
ARGV[2]  1 to pause it, 0 to resume it
ARGV[3]  when it was paused, and by whom
Returns  1 when that changed something, 0 when it was already so, -1 when there is no such schedule
Atomic because: a schedule that does not exist must not be paused.
]]
local periodic, schedule, off, text = KEYS[1], ARGV[1], ARGV[2] == '1', ARGV[3]

if redis.call('HEXISTS', periodic, schedule) == 0 then
  return -1
end
if off then
  return redis.call('HSETNX', periodic, schedule .. '|off', text)
end
return redis.call('HDEL', periodic, schedule .. '|off')
