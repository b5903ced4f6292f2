#!lua flags=allow-oom
--[[ pause: pause a queue or a periodic schedule, or resume it.

Called by: operate.pause, operate.resume, operate.pause_schedule, operate.resume_schedule
KEYS[1]  paused of the queue; for a schedule, periodic
KEYS[2]  events of pauses
ARGV[1]  what it is: name (of jobs) or schedule
ARGV[2]  the job name, or the schedule
ARGV[3]  1 to pause it, 0 to resume it
ARGV[4]  value of the pause: when it began, and by whom; "" to resume
ARGV[5]  the operator who pauses or resumes it
Returns  1 when that changed something, 0 when it was already so, -1 when there is no such schedule
Atomic because: a schedule that does not exist must not be paused, and a pause that changed nothing must not be logged.
]]
--@use time json event
local paused, pauses = KEYS[1], KEYS[2]
local kind, name, off, text, actor = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4], ARGV[5]

local changed
if kind == 'schedule' then
  if redis.call('HEXISTS', paused, name) == 0 then return -1 end
  local field = name .. '|off'
  if off then changed = redis.call('HSETNX', paused, field, text) else changed = redis.call('HDEL', paused, field) end
elseif off then
  changed = redis.call('SET', paused, text, 'NX') and 1 or 0
else
  changed = redis.call('DEL', paused)
end
if changed == 1 then
  local after = (off and '"paused"' or '"resumed"') .. ',"actor":' .. json(actor) .. '}'
  log_event(pauses, redis_time(), '{"' .. kind .. '":' .. json(name) .. ',"after":' .. after)
end
return changed
