#!lua flags=allow-oom
--[[ wish: ask something of a pool, which learns it with its next beat.

Called by: operate.wish
KEYS[1]  pools
KEYS[2]  state of the pool
KEYS[3]  stacks of the pool
ARGV[1]  pool id
ARGV[2]  quiet, stop or stacks
Returns  1 when it is wished now, 0 when it was already, -1 when the pool is not registered
Atomic because: a wish must not outlive its pool, and an old answer must not pass for the new one.
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
