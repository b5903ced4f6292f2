#!lua flags=allow-oom
--[[ lead: the leader's round: renew the leadership, condemn pools whose lease has expired, ring bells, and report what is due.

Called by: membership.lead
KEYS[1]  leader
KEYS[2]  events of leaders
KEYS[3]  pools
KEYS[4]  condemned
KEYS[5]  watch
KEYS[6]  members
KEYS[7]  events of dead pools
KEYS[8]  scheduled
KEYS[9]  retry
KEYS[10]  parked
KEYS[11]  dead
KEYS[12]  done
KEYS[13]  known_jobs
KEYS[14]  released
KEYS[15]  limits
KEYS[16...]  6 per job name whose bell to ring: queue, paused, held set, bell, turns, blocked; 200 names at most
ARGV[1]  pool id
ARGV[2]  milliseconds of leadership; 0 to give it up
ARGV[3]  lease, milliseconds
ARGV[4...]  the job names whose bells to ring
Returns  {1 when this pool leads, else 0; ids of condemned pools, 100 at most; milliseconds until the first member of
          scheduled, of retry and of parked is due, or -1 for an empty set; number of known job names; size and lowest score
          of dead, and of done; how many bells were rung; size of released}. All but the first are empty when this pool does not lead.
Atomic because: only the leader itself may renew or give up the leadership.
]]
--@use time json event leader member leases bell limits fetchable ring_queues size
local leader, leaders, pools, condemned, watch, members, died = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local scheduled, retry, parked, dead, done, known = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local released, limits = KEYS[14], KEYS[15]
local id, term, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- A key of a wrong type names no leader; SET replaces it.
local holder = redis.pcall('GET', leader)
if (type(holder) == 'string' and holder ~= id) or (term == '0' and holder ~= id) then
  return {0, {}, {}, 0, {}, 0, 0}
end
if term == '0' then
  redis.call('DEL', leader)
  return {0, {}, {}, 0, {}, 0, 0}
end
redis.call('ZCARD', condemned)
redis.call('ZCARD', pools)

local now = redis_time()
redis.call('SET', leader, id, 'PX', term)
if holder ~= id then log_leader(leaders, now, id) end
condemn_pools(pools, condemned, leader, members, died, expired_pools(pools, watch, lease, now), 'lease', id, now)

local rung = ring_queues(limits, parked, now, 15, {unpack(ARGV, 4)})

-- A set of a wrong type counts as due in five seconds: the chore that reads it then reports it.
local function wait_of(set)
  local first = redis.pcall('ZRANGE', set, 0, 0, 'WITHSCORES')
  if first.err then return 5000 end
  if not first[2] then return -1 end
  return math.min(math.max(math.ceil(tonumber(first[2]) * 1000 - now), 0), 86400000)
end
local function lowest_of(set)
  local first = redis.pcall('ZRANGE', set, 0, 0, 'WITHSCORES')
  return not first.err and first[2] or ''
end
local sizes = {size_of('ZCARD', dead), lowest_of(dead), size_of('ZCARD', done), lowest_of(done)}
return {
  1, redis.call('ZRANGE', condemned, 0, 99), {wait_of(scheduled), wait_of(retry), wait_of(parked)}, size_of('SCARD', known), sizes,
  rung, size_of('ZCARD', released),
}
