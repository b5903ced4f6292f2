#!lua flags=allow-oom
--[[ join: register a pool under a new id, and add its job names to known_jobs.

Called by: membership.join
KEYS[1]  pools
KEYS[2]  condemned
KEYS[3]  state of this pool
KEYS[4]  known_jobs
KEYS[5]  leader
KEYS[6]  members
KEYS[7]  events of started pools
KEYS[8]  events of leaders
ARGV[1]  pool id
ARGV[2]  lease, milliseconds
ARGV[3]  milliseconds of leadership to take if there is no leader; 0 to leave the leadership alone
ARGV[4]  what the pool publishes about itself, JSON
ARGV[5...]  job names
Returns  {1 when registered, 0 when this id was used before; Redis milliseconds; 1 when this pool leads}
Atomic because: an id that was condemned must never be registered again.
]]
--@use time json event leader
local pools, condemned, state, known, leader = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local members, started, leaders = KEYS[6], KEYS[7], KEYS[8]
local id, lease, term, about = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local now = redis_time()
if redis.call('ZSCORE', pools, id) or redis.call('ZSCORE', condemned, id) or redis.call('HLEN', state) > 0 then
  return {0, now, 0}
end
redis.call('SCARD', known)

redis.call('ZADD', pools, string.format('%d', now + lease), id)
redis.call('HSET', state, 'last', 0)
for first = 5, #ARGV, 500 do
  redis.call('SADD', known, unpack(ARGV, first, math.min(first + 499, #ARGV)))
end
local leads = term ~= '0' and redis.call('SET', leader, id, 'NX', 'PX', term)
redis.pcall('HSET', members, id, about)
log_event(started, now, '{"pool":' .. json(id) .. ',"about":' .. about .. '}')
if leads then log_leader(leaders, now, id) end
return {1, now, leads and 1 or 0}
