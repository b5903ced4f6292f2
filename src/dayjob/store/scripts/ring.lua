#!lua flags=allow-oom
--[[ ring: ring the bell of every queue that can be fetched from.

Called by: maintain.ring
KEYS[1]  limits
KEYS[2...]  4 per job name: queue, paused, held set, bell
ARGV[1...]  the job names
Returns  how many bells were rung
Atomic because: size, pause and limit of a queue must come from the same state.
]]
local limits = KEYS[1]

local limit = #ARGV > 0 and redis.pcall('HMGET', limits, unpack(ARGV)) or {}
if limit.err then
  return 0
end
local rung = 0
for i = 1, #ARGV do
  local base = (i - 1) * 4 + 1
  local waiting = redis.pcall('LLEN', KEYS[base + 1])
  if type(waiting) == 'number' and waiting > 0 and redis.call('EXISTS', KEYS[base + 2]) == 0 then
    local running = 0
    if limit[i] then running = redis.pcall('SCARD', KEYS[base + 3]) end
    if type(running) == 'number' and (not limit[i] or running < (tonumber(limit[i]) or 0)) then
      if type(redis.pcall('ZADD', KEYS[base + 4], 0, '1')) == 'table' then
        redis.call('DEL', KEYS[base + 4])
        redis.call('ZADD', KEYS[base + 4], 0, '1')
      end
      rung = rung + 1
    end
  end
end
return rung
