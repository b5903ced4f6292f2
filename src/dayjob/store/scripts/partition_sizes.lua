#!lua flags=no-writes
--[[ partition_sizes: count the jobs in partitions, and find the oldest.

Called by: partitions.partition_sizes
KEYS[1...]  partitions, 1,000 at most
Returns  {jobs waiting in all of them; the oldest payload, only its end if it is long, or false}
Atomic because: the sizes must be taken at the same time.
]]
local LONG = 4096

local total, oldest, since = 0, false, math.huge
for i = 1, #KEYS do
  local size = redis.pcall('LLEN', KEYS[i])
  if type(size) == 'number' and size > 0 then
    total = total + size
    local payload = redis.call('LINDEX', KEYS[i], -1)
    local at = tonumber(string.match(payload, '"at":(%d+)}$') or (string.match(payload, '"t":(%d+)') or '') .. '000') or 0
    if at < since then oldest, since = string.sub(payload, -LONG), at end
  end
end
return {total, oldest}
