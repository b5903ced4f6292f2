#!lua flags=allow-oom
--[[ wish: ask a pool to go quiet, stop or publish its stacks. The pool reads the request with its next beat.

Called by: operate.wish
KEYS[1]  pools
KEYS[2]  state of the pool
KEYS[3]  stacks of the pool
ARGV[1]  pool id
ARGV[2]  quiet, stop or stacks
Returns  1 when the request was stored, 0 when it was there already, -1 when the pool is not registered
Atomic because: a pool that has left must not get requests, and old stacks must not be taken for the new ones.
]]
local pools, state, stacks = KEYS[1], KEYS[2], KEYS[3]
local id, wish = ARGV[1], ARGV[2]

if not redis.call('ZSCORE', pools, id) then
  return -1
end
local new = redis.call('HSETNX', state, 'wish:' .. wish, '1')
if wish == 'stacks' then
  redis.call('DEL', stacks)
end
return new
