#!lua flags=allow-oom
--[[ recount: correct which attempts count against the limit of a job name.

Called by: maintain.recount
KEYS[1]  limits
KEYS[2]  held set of the name
KEYS[3]  bell of the name
KEYS[4...]  held of the pools that entries refer to
ARGV[1]  job name
ARGV[2...]  3 per entry: member of the held set, key index of its pool's held, token
Returns  how many were removed, because no pool holds them any more
Atomic because: an attempt counts exactly as long as a pool holds it.
]]
--@use bell
local limits, members, bell, name = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

local limited = redis.call('HEXISTS', limits, name) == 1
redis.call('SCARD', members)
local removed = 0
for i = 2, #ARGV, 3 do
  -- For a held key of a wrong type pcall returns an error table, so its attempts stay as they are.
  local held = redis.pcall('HEXISTS', KEYS[tonumber(ARGV[i + 1])], ARGV[i + 2])
  if held == 0 then
    removed = removed + redis.call('SREM', members, ARGV[i])
  elseif held == 1 and limited then
    redis.call('SADD', members, ARGV[i])
  end
end
if removed > 0 then ring(bell) end
return removed
