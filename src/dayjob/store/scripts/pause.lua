#!lua flags=allow-oom
--[[ pause: pause a queue, or resume it.

Called by: operate.pause, operate.resume
KEYS[1]  paused
KEYS[2]  events of pauses
ARGV[1]  job name
ARGV[2]  1 to pause the queue, 0 to resume it
ARGV[3]  value of the pause: when it began, and by whom; "" to resume
ARGV[4]  the operator who pauses or resumes it
Returns  1 when that changed something, 0 when it was already so
Atomic because: a pause that changed nothing must not be logged.
]]
--@use time json event
local paused, pauses = KEYS[1], KEYS[2]
local name, off, text, actor = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]

local changed
if off then
  changed = redis.call('SET', paused, text, 'NX')
else
  changed = redis.call('DEL', paused) == 1
end
if not changed then
  return 0
end
local after = off and '"paused"' or '"resumed"'
log_event(pauses, redis_time(), '{"name":' .. json(name) .. ',"after":' .. after .. ',"actor":' .. json(actor) .. '}')
return 1
