#!lua flags=allow-oom
--[[ ring: ring the bell of every queue that can be fetched from.

Called by: maintain.ring
KEYS[1]  limits
KEYS[2]  parked
KEYS[3...]  5 per job name: queue, paused, held set, bell, turns
ARGV[1...]  the job names
Returns  how many bells were rung
Atomic because: size, pause and limits of a queue must come from the same state.
]]
--@use time bell limits fetchable
local parked = KEYS[2]
local limit = limits_of(KEYS[1], ARGV)
if not limit then
  return 0
end
local now = redis_time()
local some_parked = redis.pcall('ZCARD', parked)
if type(some_parked) == 'table' then
  -- Only dayjob uses this key, so a value of a wrong type can be deleted. Exchanges park the names again.
  redis.call('DEL', parked)
  some_parked = 0
end
local rung = 0
for i = 1, #ARGV do
  local base = (i - 1) * 5 + 2
  local by_key = limit[i] and string.find(limit[i], ' |', 1, true)
  local at = some_parked > 0 and redis.call('ZSCORE', parked, ARGV[i])
  -- A parked name waits for a rate limit until then. One with keys must be fetched before if it has jobs to sort.
  local unsorted = by_key and (redis.pcall('LLEN', KEYS[base + 1]) or 0)
  local due = not at or tonumber(at) * 1000 <= now
  if due or (type(unsorted) == 'number' and unsorted > 0) then
    if at and due then redis.call('ZREM', parked, ARGV[i]) end
    if (fetchable(base, limit[i], by_key and KEYS[base + 5]) or 0) > 0 then
      ring(KEYS[base + 4])
      rung = rung + 1
    end
  end
end
return rung
