#!lua flags=allow-oom
--[[ record_alert: change the state of one alert, and keep its message for every receiver.

Called by: alerts.record_alert
KEYS[1]  alerts
KEYS[2...]  undelivered messages of each receiver, 20 at most
ARGV[1]  the alert
ARGV[2]  its state as the watcher read it; empty if it had none
ARGV[3]  its new state; empty to forget it
ARGV[4]  the message, JSON; empty for none
ARGV[5]  how many messages are kept for a receiver
ARGV[6]  seconds for which they are kept
Returns  1 when the state was changed, 0 when another watcher had changed it before
Atomic because: each change must be posted once, even if two watchers see it.
]]
local alerts, alert, before, after, message = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local most, seconds = tonumber(ARGV[5]), ARGV[6]

if (redis.call('HGET', alerts, alert) or '') ~= before then
  return 0
end
for i = 2, #KEYS do
  -- A key of a wrong type raises here, before anything is written.
  redis.call('LLEN', KEYS[i])
end
if after == '' then
  redis.call('HDEL', alerts, alert)
else
  redis.call('HSET', alerts, alert, after)
end
if message ~= '' then
  for i = 2, #KEYS do
    redis.call('LPUSH', KEYS[i], message)
    redis.call('LTRIM', KEYS[i], 0, most - 1)
    redis.call('EXPIRE', KEYS[i], seconds)
  end
end
return 1
