#!lua flags=allow-oom
--[[ leader: take, renew or give up the leadership.

Called by: consume.lead, consume.unlead
KEYS[1]  leader
ARGV[1]  pool id
ARGV[2]  milliseconds of leadership; 0 to give it up
Returns  1 when this pool leads, else 0
Atomic because: only the holder may renew or give up.
]]
local leader, id, term = KEYS[1], ARGV[1], ARGV[2]

local holder = redis.call('GET', leader)
if holder and holder ~= id then
  return 0
end
if term == '0' then
  redis.call('DEL', leader)
  return 0
end
redis.call('SET', leader, id, 'PX', term)
return 1
