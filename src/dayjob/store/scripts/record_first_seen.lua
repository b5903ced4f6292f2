#!lua flags=allow-oom
--[[ record_first_seen: store when problems of the server and the keys were first noticed, and remove those that are over.

Called by: maintain.record_first_seen
KEYS[1]  first_seen
KEYS[2...]  scheduled, retry, dead, done, broken
ARGV[1...]  problems that the caller noticed: memory_only, or the key of a queue with a key of a wrong type; 200 at most
Returns  how many problems began or are over
Atomic because: two leaders may notice a problem, and the later one must not replace the time of the earlier one.
]]
--@use time
local seen = KEYS[1]

local holds = {}
for i = 1, #ARGV do
  holds[ARGV[i]] = true
end
for i = 2, #KEYS do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= (i == #KEYS and 'list' or 'zset') then holds[KEYS[i]] = true end
end
local info = redis.pcall('INFO', 'memory')
local policy = type(info) == 'string' and string.match(info, 'maxmemory_policy:([%w-]+)') or 'noeviction'
if policy ~= 'noeviction' then holds['eviction'] = true end

local before = redis.pcall('HKEYS', seen)
if before.err then
  redis.call('DEL', seen)
  before = {}
end
local changes, _, second = 0, redis_time()
for _, state in ipairs(before) do
  if not holds[state] then
    redis.call('HDEL', seen, state)
    changes = changes + 1
  end
  holds[state] = nil
end
for state in pairs(holds) do
  redis.call('HSET', seen, state, second)
  changes = changes + 1
end
return changes
