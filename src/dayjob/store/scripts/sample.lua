#!lua flags=allow-oom
--[[ sample: note how many jobs wait as a minute begins.

Called by: maintain.sample
KEYS[1]  minute
KEYS[2...]  queues, 200 at most
ARGV[1]  1 with the last queues of this minute: from then on a queue that is not noted was empty
ARGV[2...]  the job names of the queues
Returns  how many were noted, or -1 when the minute has a wrong type
Atomic because: the sizes of one moment belong together.
]]
local minute, last = KEYS[1], ARGV[1] == '1'

if type(redis.pcall('HLEN', minute)) ~= 'number' then
  return -1
end
local noted = 0
for i = 2, #ARGV do
  local size = redis.pcall('LLEN', KEYS[i])
  if type(size) == 'number' and size > 0 then
    noted = noted + redis.call('HSETNX', minute, ARGV[i] .. '|q', string.format('%d', size))
  end
end
if last then
  redis.call('HSETNX', minute, '|q', redis.call('TIME')[1])
end
redis.call('EXPIRE', minute, 262800)
return noted
