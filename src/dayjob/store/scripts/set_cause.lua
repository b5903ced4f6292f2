#!lua flags=allow-oom
--[[ set_cause: record why a pool is about to be killed, and which attempt caused it.

Called by: membership.set_cause
KEYS[1]  state of the pool
KEYS[2]  held of the pool
ARGV[1]  token of the attempt that caused it, or "" when no attempt did
ARGV[2]  the cause
Returns  1 when it was recorded, 0 when the pool is gone or does not hold that attempt
Atomic because: an attempt that has just ended must not be recorded as the cause.
]]
local state, held, token, why = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

local known = redis.call('HLEN', state) > 0
if not known or (token ~= '' and redis.call('HEXISTS', held, token) == 0) then
  return 0
end
redis.call('HSET', state, 'culprit', token, 'cause', why)
return 1
