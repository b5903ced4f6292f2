#!lua flags=allow-oom
--[[ announce: store a pool's descriptions of its job types, where they are new or changed.

Called by: job_types.announce
KEYS[1]  job_types
ARGV[1]  how many job types are kept
ARGV[2]  seconds after which an unchanged description is written again, to refresh its time
ARGV[3...]  2 per job type, 200 at most: name, description as JSON
Returns  how many were written, or -1 when the key has a wrong type
Atomic because: the description of a job type and its time must change together.
]]
local types, most, fresh = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])

local now = tonumber(redis.call('TIME')[1])
local known = redis.pcall('HLEN', types)
if type(known) ~= 'number' then
  return -1
end
local written = 0
for i = 3, #ARGV, 2 do
  local name, description = ARGV[i], ARGV[i + 1]
  local before = redis.call('HMGET', types, name, name .. '|at')
  local old = now - (tonumber(before[2] or '0') or 0) >= fresh
  if (before[1] or known < 2 * most) and (before[1] ~= description or old) then
    if not before[1] then known = known + 2 end
    redis.call('HSET', types, name, description, name .. '|at', string.format('%d', now))
    written = written + 1
  end
end
return written
