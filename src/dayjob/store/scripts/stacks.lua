#!lua flags=allow-oom
--[[ stacks: publish the stack traces of a pool's busy workers, which an operator asked for.

Called by: membership.stacks
KEYS[1]  pools
KEYS[2]  state of this pool
KEYS[3]  stacks of this pool
ARGV[1]  pool id
ARGV[2]  stacks, JSON
ARGV[3]  seconds to keep them
Returns  1 when written, 0 when the pool is not registered
Atomic because: a pool that has left must not leave stacks behind, and the request must be removed with its answer.
]]
local pools, state, stacks = KEYS[1], KEYS[2], KEYS[3]
local id, text, seconds = ARGV[1], ARGV[2], ARGV[3]

if not redis.call('ZSCORE', pools, id) then
  return 0
end
redis.call('HLEN', state)
-- A list, because a client can block until it has an element.
redis.call('DEL', stacks)
redis.call('RPUSH', stacks, text)
redis.call('EXPIRE', stacks, seconds)
redis.call('HDEL', state, 'wish:stacks')
return 1
