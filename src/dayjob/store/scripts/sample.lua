#!lua flags=allow-oom
--[[ sample: record how many jobs are waiting at the start of a minute.

Called by: maintain.sample
KEYS[1]  minute
KEYS[2...]  queues, 200 at most
ARGV[1]  1 with the last queues of this minute: it marks the sample as complete, so that a queue without a size was empty
ARGV[2...]  2 per queue: its job name, how many more jobs wait under its keys
Returns  how many were recorded, or -1 when the minute has a wrong type
Atomic because: the sizes of the queues must be taken at the same time.
]]
local minute, last = KEYS[1], ARGV[1] == '1'

if type(redis.pcall('HLEN', minute)) ~= 'number' then
  return -1
end
local recorded = 0
for i = 2, #ARGV, 2 do
  local size = redis.pcall('LLEN', KEYS[i / 2 + 1])
  if type(size) == 'number' then size = size + ARGV[i + 1] end
  if type(size) == 'number' and size > 0 then
    recorded = recorded + redis.call('HSETNX', minute, ARGV[i] .. '|q', string.format('%d', size))
  end
end
if last then
  redis.call('HSETNX', minute, '|q', redis.call('TIME')[1])
end
redis.call('EXPIRE', minute, 262800)
return recorded
