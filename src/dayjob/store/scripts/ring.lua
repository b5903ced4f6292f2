#!lua flags=allow-oom
--[[ ring: ring the bell of every queue that can be fetched from.

Called by: maintain.ring
KEYS[1]  limits
KEYS[2...]  4 per job name: queue, paused, held set, bell
ARGV[1...]  the job names
Returns  how many bells were rung
Atomic because: size, pause and limit of a queue must come from the same state.
]]
--@use bell fetchable
local limit = limits_of(KEYS[1], ARGV)
if not limit then
  return 0
end
local rung = 0
for i = 1, #ARGV do
  local base = (i - 1) * 4 + 1
  if (fetchable(base, limit[i]) or 0) > 0 then
    ring(KEYS[base + 4])
    rung = rung + 1
  end
end
return rung
