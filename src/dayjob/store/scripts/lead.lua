#!lua flags=allow-oom
--[[ lead: take, renew or give up the leadership for a pool.

Called by: membership.lead
KEYS[1]  leader
KEYS[2]  events of leaders
ARGV[1]  pool id
ARGV[2]  milliseconds of leadership; 0 to give it up
Returns  1 when this pool leads, else 0
Atomic because: only the leader itself may renew or give up the leadership.
]]
--@use time json event leader
local leader, leaders, id, term = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

-- A key of a wrong type names no leader; SET replaces it.
local holder = redis.pcall('GET', leader)
if type(holder) == 'string' and holder ~= id then
  return 0
end
if term == '0' then
  if holder == id then redis.call('DEL', leader) end
  return 0
end
redis.call('SET', leader, id, 'PX', term)
if holder ~= id then log_leader(leaders, redis_time(), id) end
return 1
