#!lua flags=allow-oom
--[[ forget_names: remove job names that nothing uses from the known ones.

Called by: maintain.forget_names
KEYS[1]  known_jobs
KEYS[2]  limits
KEYS[3]  job_types
KEYS[4...]  2 per job name: queue, paused
ARGV[1]  1 to remove them, 0 to look only
ARGV[2...]  the job names, 200 at most
Returns  the indexes of those that nothing uses, from 1
Atomic because: a name under which a job is enqueued at this moment must stay known.
]]
local known, limits, types = KEYS[1], KEYS[2], KEYS[3]
local remove = ARGV[1] == '1'

redis.call('SCARD', known)
local unused = {}
for i = 2, #ARGV do
  local name, base = ARGV[i], 3 + (i - 2) * 2
  -- A key of a wrong type answers with a table: its name is kept.
  if redis.pcall('LLEN', KEYS[base + 1]) == 0 and redis.call('EXISTS', KEYS[base + 2]) == 0
    and redis.pcall('HEXISTS', limits, name) == 0 and redis.pcall('HEXISTS', types, name) == 0 then
    unused[#unused + 1] = i - 1
    if remove then redis.call('SREM', known, name) end
  end
end
return unused
