#!lua flags=allow-oom
--[[ ring: ring the bell of every queue that can be fetched from.

Called by: maintain.ring
KEYS[1]  limits
KEYS[2]  parked
KEYS[3...]  6 per job name: queue, paused, held set, bell, turns, blocked
ARGV[1...]  the job names
Returns  how many bells were rung
Atomic because: size, pause and limits of a queue must come from the same state.
]]
--@use time bell limits fetchable ring_queues
local limits, parked = KEYS[1], KEYS[2]

return ring_queues(limits, parked, redis_time(), 2, ARGV)
