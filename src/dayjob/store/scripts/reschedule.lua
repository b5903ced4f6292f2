#!lua flags=allow-oom
--[[ reschedule: change when a job of scheduled or retry is due.

Called by: operate.reschedule
KEYS[1]  scheduled or retry
KEYS[2]  due
KEYS[3]  unique key of the job; without one, due again
ARGV[1]  the job exactly as the client read it
ARGV[2]  "in" or "at"
ARGV[3]  milliseconds from now, or since the epoch
ARGV[4]  job id
Returns  {1 when the time was changed, 0 when the job is not there any more; due milliseconds}
A unique key that the job owns is kept until thirty days after the new time.
Atomic because: a job that moved on must not come back, and its unique key must not expire before it.
]]
--@use time bell
local set, due, unique = KEYS[1], KEYS[2], KEYS[3]
local member, mode, amount, id = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local now = redis_time()
local at = mode == 'in' and now + amount or amount
if not (at >= 0 and at < 1e15) then return redis.error_reply('ERR the time to run is out of range') end
if not redis.call('ZSCORE', set, member) then return {0, at} end

redis.call('ZADD', set, string.format('%.3f', at / 1000), member)
if unique ~= due and redis.pcall('GET', unique) == id then
  local life = math.max(at - now, 0) + 2592000000
  if redis.call('PTTL', unique) < life then redis.call('PEXPIRE', unique, string.format('%d', life)) end
end
ring(due)
return {1, at}
