#!lua flags=no-writes
--[[ missing_rollups: find the spans of minutes that have figures but are not rolled up.

Called by: rollups.missing_rollups
KEYS[1...]  per span: its roll-up, then what that can be summed from; 4,700 at most
ARGV[1]  how many keys each span has
Returns  {index of each such span, from 0}
Atomic because: a span must not be rolled up between the two reads of it. One request replaces two for each span.
]]
local size, found = tonumber(ARGV[1]), {}
for first = 1, #KEYS, size do
  local done = redis.call('EXISTS', KEYS[first]) == 1
  if not done and redis.call('EXISTS', KEYS[first + 1], unpack(KEYS, first + 2, first + size - 1)) > 0 then
    found[#found + 1] = (first - 1) / size
  end
end
return found
