#!lua flags=allow-oom
--[[ leave: remove a pool from pools. If it still holds attempts, it is condemned, and sweep moves them.

Called by: membership.leave
KEYS[1]  pools
KEYS[2]  condemned
KEYS[3]  state of this pool
KEYS[4]  held of this pool
KEYS[5]  status of this pool
KEYS[6]  leader
KEYS[7]  members
KEYS[8]  events of stopped pools
ARGV[1]  pool id
Returns  how many attempts the pool still held
Atomic because: a pool that still holds attempts must be condemned in the same step, or its attempts would be lost.
]]
--@use time json event member
local pools, condemned, state, held, status, leader = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local members, stopped = KEYS[7], KEYS[8]
local id = ARGV[1]

local now, second = redis_time()
local left = redis.call('HLEN', held)
local leads = redis.pcall('GET', leader) == id
redis.call('ZCARD', pools)
redis.call('ZCARD', condemned)
if left > 0 then
  redis.call('ZADD', condemned, second, id)
else
  redis.call('DEL', state, status)
end
local registered = redis.call('ZREM', pools, id) == 1
if leads then
  redis.call('DEL', leader)
end
if registered then
  local about = forget_member(members, id)
  log_event(stopped, now, '{"pool":' .. json(id) .. ',"held":' .. string.format('%d', left) .. ',"about":' .. about .. '}')
end
return left
