#!lua flags=allow-oom
--[[ status: publish the status of a pool, for the console and the command line.

Called by: membership.status
KEYS[1]  pools
KEYS[2]  status of this pool
ARGV[1]  pool id
ARGV[2]  status, JSON
Returns  1 when written, 0 when the pool is not registered
Atomic because: a pool that has left must not leave a status behind.
]]
local pools, status = KEYS[1], KEYS[2]
local id, text = ARGV[1], ARGV[2]

if not redis.call('ZSCORE', pools, id) then
  return 0
end
redis.call('SET', status, text, 'EX', 3600)
return 1
