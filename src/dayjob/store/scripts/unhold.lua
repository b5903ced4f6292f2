#!lua flags=allow-oom
--[[ unhold: remove members of a limit's held set whose attempts are no longer held.

Called by: maintain.unhold
KEYS[1]  held set of a name
KEYS[2]  bell of the name
KEYS[3...]  held of the pools that entries name
ARGV[1...]  3 per entry: member, key index of its pool's held, token
Returns  how many were removed
Atomic because: an attempt must not lose its place between the look and the removal.
]]
local members, bell = KEYS[1], KEYS[2]

redis.call('SCARD', members)
local removed = 0
for i = 1, #ARGV, 3 do
  -- A held of a wrong type answers with a table: its places are kept.
  if redis.pcall('HEXISTS', KEYS[tonumber(ARGV[i + 1])], ARGV[i + 2]) == 0 then
    removed = removed + redis.call('SREM', members, ARGV[i])
  end
end
if removed > 0 then
  redis.pcall('ZADD', bell, 0, '1')
end
return removed
