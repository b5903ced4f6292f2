#!lua flags=allow-oom
--[[ cancel: ask a pool to end an attempt that it holds.

Called by: operate.cancel
KEYS[1]  pools
KEYS[2]  held of the pool
KEYS[3]  state of the pool
ARGV[1]  pool id
ARGV[2]  token
Returns  1 when the attempt is held by a live pool, else 0
Atomic because: a wish must not outlive its attempt.
]]
local pools, held, state = KEYS[1], KEYS[2], KEYS[3]
local id, token = ARGV[1], ARGV[2]

if not redis.call('ZSCORE', pools, id) or redis.call('HEXISTS', held, token) == 0 then
  return 0
end
redis.call('HSET', state, 'cancel:' .. token, '1')
return 1
