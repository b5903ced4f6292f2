#!lua flags=allow-oom
--[[ pause_schedule: pause a periodic schedule, or resume it.

Called by: operate.pause_schedule, operate.resume_schedule
KEYS[1]  periodic
KEYS[2]  events of pauses
ARGV[1]  schedule
ARGV[2]  1 to pause it, 0 to resume it
ARGV[3]  when it was paused, and by whom; "" to resume
ARGV[4]  the operator who pauses or resumes it
Returns  1 when that changed something, 0 when it was already so, -1 when there is no such schedule
Atomic because: a schedule that does not exist must not be paused.
]]
--@use time json event
local periodic, pauses = KEYS[1], KEYS[2]
local schedule, off, text, actor = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]

if redis.call('HEXISTS', periodic, schedule) == 0 then
  return -1
end
local changed
if off then
  changed = redis.call('HSETNX', periodic, schedule .. '|off', text)
else
  changed = redis.call('HDEL', periodic, schedule .. '|off')
end
if changed == 1 then
  local after = (off and '"paused"' or '"resumed"') .. ',"actor":' .. json(actor) .. '}'
  log_event(pauses, redis_time(), '{"schedule":' .. json(schedule) .. ',"after":' .. after)
end
return changed
