#!lua flags=allow-oom
--[[ condemn: move pools whose lease has expired, or whose process is known to be dead, from pools to condemned.

Called by: maintain.condemn
KEYS[1]  pools
KEYS[2]  condemned
KEYS[3]  watch
KEYS[4]  leader
KEYS[5]  members
KEYS[6]  events of dead pools
ARGV[1]  lease, milliseconds
ARGV[2]  1 to check leases too, 0 for the following ids only
ARGV[3...]  ids of pools whose process is known to be dead
Returns  ids of condemned pools, 100 at most
Atomic because: once condemned, a pool can no longer settle or fetch, so what it holds stays as it is until it is swept.
]]
--@use time json event member leases
local pools, condemned, watch, leader, members, died = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local lease, judge = tonumber(ARGV[1]), ARGV[2] == '1'

local now = redis_time()
redis.call('ZCARD', condemned)
redis.call('ZCARD', pools)
local leads = redis.pcall('GET', leader)
local proven = {unpack(ARGV, 3)}
if judge then
  condemn_pools(pools, condemned, leader, members, died, expired_pools(pools, watch, lease, now), 'lease', leads, now)
end
condemn_pools(pools, condemned, leader, members, died, proven, 'exit', leads, now)
return redis.call('ZRANGE', condemned, 0, 99)
