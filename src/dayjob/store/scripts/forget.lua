#!lua flags=allow-oom
--[[ forget: drop job types that no pool has announced recently.

Called by: job_types.forget
KEYS[1]  job_types
KEYS[2]  versions
ARGV[1]  seconds for which a job type is kept after it was last announced
ARGV[2...]  names to check, 500 at most
Returns  how many were dropped
Atomic because: a job type that a pool announces at the same time must stay.
]]
local types, versions, age = KEYS[1], KEYS[2], tonumber(ARGV[1])

local now = tonumber(redis.call('TIME')[1])
local dropped = 0
for i = 2, #ARGV do
  local at = tonumber(redis.call('HGET', types, ARGV[i] .. '|at') or '0') or 0
  if now - at > age then
    if redis.call('HDEL', types, ARGV[i], ARGV[i] .. '|at') > 0 then dropped = dropped + 1 end
    redis.pcall('HDEL', versions, ARGV[i])
  end
end
return dropped
