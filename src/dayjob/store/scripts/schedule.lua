#!lua
--[[ schedule: put jobs of one name into scheduled, and wake the leader if they are due before all others.

Called by: produce.schedule
KEYS[1]  sent:<slot>
KEYS[2]  scheduled
KEYS[3]  known_jobs
KEYS[4]  due
ARGV[1]  number of this request on its slot
ARGV[2]  job name to add to known_jobs, or "" when the enqueuer added it recently
ARGV[3]  "in" or "at"
ARGV[4]  milliseconds from now, or since the epoch
ARGV[5]  milliseconds from now until the jobs expire, or 0
ARGV[6...]  payloads, 500 at most
Returns  {1 when stored now, 0 when this request was stored before; Redis milliseconds; due milliseconds}
Atomic because: a resend must find all of its jobs stored or none, and the leader must not sleep past a due job.
]]
--@use time sent expiry soonest put
local sent, scheduled, known, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local number, name, mode, amount, span = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local now = redis_time()
local at = mode == 'in' and now + amount or amount
local last, again = begin_request(sent, number, known, name)
if again then
  -- The first send decided when the jobs are due.
  local n, first_at = string.match(last, '^(%d+):at:(%d+)$')
  return {0, now, n == number and tonumber(first_at) or at}
end

local payloads = {}
for i = 6, #ARGV do payloads[i - 5] = span > 0 and with_expiry(ARGV[i], now + span) or ARGV[i] end
put_jobs(scheduled, due, payloads, at)
if name ~= '' then
  redis.call('SADD', known, name)
end
redis.call('SET', sent, string.format('%s:at:%d', number, at), 'EX', 3600)
return {1, now, at}
