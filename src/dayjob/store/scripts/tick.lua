#!lua
--[[ tick: enqueue the open ticks of one schedule, if nobody did it before.

Called by: produce.tick
KEYS[1]  periodic
KEYS[2]  queue
KEYS[3]  known_jobs
KEYS[4]  bell
KEYS[5]  totals
ARGV[1]  schedule
ARGV[2]  job name
ARGV[3]  last tick as the caller saw it, or "" when it saw none
ARGV[4]  new last tick, or "" to store Redis TIME at first sight
ARGV[5]  how many ticks the policy leaves out
ARGV[6...]  2 per job: tick, payload; ascending
Returns  {how many were enqueued; last tick in force; Redis milliseconds; 1 when an operator paused it}
Atomic because: one job per tick, with any number of schedulers.
]]
local periodic, queue, known, bell, totals = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local schedule, name, seen, newest, missed = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call('HMGET', periodic, schedule, schedule .. '|off')
local last, off = stored[1], stored[2]
if not last then
  redis.call('HSET', periodic, schedule, time[1])
  redis.call('HSETNX', periodic, schedule .. '|ticked', '')
  return {0, tonumber(time[1]), now, off and 1 or 0}
end
if newest == '' or seen ~= last or tonumber(newest) > tonumber(time[1]) or tonumber(newest) <= tonumber(last) then
  return {0, tonumber(last), now, off and 1 or 0}
end
redis.call('LLEN', queue)
redis.call('SCARD', known)

local enqueued = 0
for i = 6, #ARGV, 2 do
  if off then
    missed = missed + 1
  else
    redis.call('LPUSH', queue, ARGV[i + 1])
    enqueued = enqueued + 1
  end
end
redis.call('HSET', periodic, schedule, newest)
if enqueued > 0 then
  redis.call('HSET', periodic, schedule .. '|ticked', ARGV[#ARGV - 1])
  redis.call('SADD', known, name)
  redis.pcall('ZADD', bell, 0, '1')
  redis.pcall('HINCRBY', totals, 'ticked:' .. name, enqueued)
end
if missed > 0 then
  redis.pcall('HINCRBY', totals, 'missed:' .. name, string.format('%d', missed))
end
return {enqueued, tonumber(newest), now, off and 1 or 0}
