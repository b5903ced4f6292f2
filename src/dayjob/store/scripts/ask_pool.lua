#!lua flags=allow-oom
--[[ ask_pool: ask a pool to go quiet, resume, stop, publish its stacks or end an attempt, with its next heartbeat.

Called by: operate.ask_pool, operate.cancel
KEYS[1]  pools
KEYS[2]  state of the pool
KEYS[3]  held of the pool
KEYS[4]  stacks of the pool
ARGV[1]  pool id
ARGV[2]  quiet, resume, stop, stacks, cancel (end the attempt) or kill (end it and send its job to dead)
ARGV[3]  token of the attempt to end, else ""
Returns  1 when the request was stored, 0 when there was one already, -1 when the pool is not registered or does not hold the attempt
Atomic because: no request may be stored for a pool that has left or an attempt that has ended, and old stacks must not be taken
for the new ones.
]]
local pools, state, held, stacks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, request, token = ARGV[1], ARGV[2], ARGV[3]

if not redis.call('ZSCORE', pools, id) then
  return -1
end
if token == '' then
  -- Of these two, the last request counts.
  if request == 'resume' then redis.call('HDEL', state, 'wish:quiet') end
  if request == 'quiet' then redis.call('HDEL', state, 'wish:resume') end
  local new = redis.call('HSETNX', state, 'wish:' .. request, '1')
  if request == 'stacks' then redis.call('DEL', stacks) end
  return new
end
if redis.call('HEXISTS', held, token) == 0 then
  return -1
end
-- A kill replaces a cancel, but a cancel does not replace a kill.
if request == 'kill' then
  return redis.call('HSET', state, 'cancel:' .. token, 'kill')
end
return redis.call('HSETNX', state, 'cancel:' .. token, '1')
