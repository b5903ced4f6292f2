#!lua flags=allow-oom
--[[ unhold: remove attempts that no pool holds any more from the held set of a limit.

Called by: maintain.unhold
KEYS[1]  held set of a name
KEYS[2]  bell of the name
KEYS[3...]  held of the pools that entries refer to
ARGV[1...]  3 per entry: member, key index of its pool's held, token
Returns  how many were removed
Atomic because: an attempt that a pool still holds must stay counted.
]]
--@use bell
local members, bell = KEYS[1], KEYS[2]

redis.call('SCARD', members)
local removed = 0
for i = 1, #ARGV, 3 do
  -- For a held key of a wrong type pcall returns an error table, which is not 0, so its attempts stay counted.
  if redis.pcall('HEXISTS', KEYS[tonumber(ARGV[i + 1])], ARGV[i + 2]) == 0 then
    removed = removed + redis.call('SREM', members, ARGV[i])
  end
end
if removed > 0 then
  ring(bell)
end
return removed
