#!lua flags=allow-oom
--[[ leave: take a pool off the register. What it still holds, if anything, is left to the sweep.

Called by: consume.leave
KEYS[1]  pools
KEYS[2]  condemned
KEYS[3]  state of this pool
KEYS[4]  held of this pool
KEYS[5]  status of this pool
KEYS[6]  leader
ARGV[1]  pool id
Returns  how many attempts it still held
Atomic because: either the pool is gone with nothing held, or it is condemned with all that it holds.
]]
local pools, condemned, state, held, status, leader = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id = ARGV[1]

local time = redis.call('TIME')
local left = redis.call('HLEN', held)
local leads = redis.pcall('GET', leader) == id
redis.call('ZCARD', pools)
redis.call('ZCARD', condemned)
if left > 0 then
  redis.call('ZADD', condemned, time[1], id)
else
  redis.call('DEL', state, status)
end
redis.call('ZREM', pools, id)
if leads then
  redis.call('DEL', leader)
end
return left
