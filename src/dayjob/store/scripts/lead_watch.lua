#!lua flags=allow-oom
--[[ lead_watch: take, renew or give up the lease of the watcher that posts alerts.

Called by: alerts.lead_watch
KEYS[1]  watcher
ARGV[1]  id of the watcher
ARGV[2]  milliseconds of the lease; 0 to give it up
Returns  1 when this watcher leads, else 0
Atomic because: only the watcher that leads may renew or give up the lease.
]]
local watcher, id, term = KEYS[1], ARGV[1], ARGV[2]

-- A key of a wrong type names no watcher; SET replaces it.
local holder = redis.pcall('GET', watcher)
if type(holder) == 'string' and holder ~= id then
  return 0
end
if term == '0' then
  if holder == id then redis.call('DEL', watcher) end
  return 0
end
redis.call('SET', watcher, id, 'PX', term)
return 1
