#!lua flags=allow-oom
--[[ announce: store a pool's descriptions of its job types, where they are new or changed.

Called by: job_types.announce
KEYS[1]  job_types
KEYS[2]  versions
KEYS[3]  events of deploys
ARGV[1]  how many job types are kept
ARGV[2]  seconds after which an unchanged description is written again, to refresh its time
ARGV[3]  id of a pool that starts, or "" to restore what was lost, which is no deploy
ARGV[4]  tag of that pool: the version of its program
ARGV[5...]  2 per job type, 200 at most: name, description as JSON
Returns  how many were written, or -1 when the key has a wrong type
Atomic because: the description of a job type and its time must change together, and a deploy must be logged once.
]]
--@use time json event
local types, versions, deploys = KEYS[1], KEYS[2], KEYS[3]
local most, fresh, pool, tag = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]

local now, second = redis_time()
local known = redis.pcall('HLEN', types)
if type(known) ~= 'number' then
  return -1
end
local written, added, changed, before_tag = 0, {}, {}, nil
for i = 5, #ARGV, 2 do
  local name, description = ARGV[i], ARGV[i + 1]
  local before = redis.call('HMGET', types, name, name .. '|at')
  local old = second - (tonumber(before[2] or '0') or 0) >= fresh
  if (before[1] or known < 2 * most) and (before[1] ~= description or old) then
    if not before[1] then
      known = known + 2
      added[#added + 1] = json(name)
    elseif before[1] ~= description then
      changed[#changed + 1] = json(name)
    end
    redis.call('HSET', types, name, description, name .. '|at', second)
    written = written + 1
  end
  if pool ~= '' and (before[1] or written > 0) then
    local ran = redis.pcall('HGET', versions, name)
    if ran ~= tag then
      redis.pcall('HSET', versions, name, tag)
      if type(ran) == 'string' then before_tag = ran end
    end
  end
end
if pool ~= '' and (before_tag or #added + #changed > 0) then
  local names = ',"added":[' .. table.concat(added, ',') .. '],"changed":[' .. table.concat(changed, ',') .. ']}'
  local tags = ',"after":' .. json(tag) .. ',"before":' .. json(before_tag or tag)
  log_event(deploys, now, '{"pool":' .. json(pool) .. tags .. names)
end
return written
