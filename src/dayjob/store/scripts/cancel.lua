#!lua flags=allow-oom
--[[ cancel: ask a pool to end an attempt that it holds. The pool reads the request with its next beat.

Called by: operate.cancel
KEYS[1]  pools
KEYS[2]  held of the pool
KEYS[3]  state of the pool
ARGV[1]  pool id
ARGV[2]  token
ARGV[3]  1 to cancel the job, kill to send it to dead; a later 1 does not replace a kill
Returns  1 when a registered pool holds the attempt, else 0
Atomic because: a request must not be stored for an attempt that has ended.
]]
local pools, held, state = KEYS[1], KEYS[2], KEYS[3]
local id, token, how = ARGV[1], ARGV[2], ARGV[3]

if not redis.call('ZSCORE', pools, id) or redis.call('HEXISTS', held, token) == 0 then
  return 0
end
redis.call(how == 'kill' and 'HSET' or 'HSETNX', state, 'cancel:' .. token, how)
return 1
