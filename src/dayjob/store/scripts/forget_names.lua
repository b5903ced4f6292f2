#!lua flags=allow-oom
--[[ forget_names: remove unused job names from known_jobs.

Called by: maintain.forget_names
KEYS[1]  known_jobs
KEYS[2]  limits
KEYS[3]  job_types
KEYS[4...]  4 per job name: queue, paused, turns, blocked
ARGV[1]  1 to remove them, 0 to list them only
ARGV[2...]  the job names, 200 at most
Returns  the indexes of the unused names, from 1
Atomic because: a name whose job is enqueued at the same time must stay in known_jobs.
]]
local known, limits, types = KEYS[1], KEYS[2], KEYS[3]
local remove = ARGV[1] == '1'

redis.call('SCARD', known)
local unused = {}
for i = 2, #ARGV do
  local name, base = ARGV[i], 3 + (i - 2) * 4
  -- For a key of a wrong type pcall returns an error table, which is not 0, so the name is kept.
  if redis.pcall('LLEN', KEYS[base + 1]) == 0 and redis.call('EXISTS', KEYS[base + 2], KEYS[base + 3], KEYS[base + 4]) == 0
    and redis.pcall('HEXISTS', limits, name) == 0 and redis.pcall('HEXISTS', types, name) == 0 then
    unused[#unused + 1] = i - 1
    if remove then redis.call('SREM', known, name) end
  end
end
return unused
