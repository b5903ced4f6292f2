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
local sent, scheduled, known, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local number, name, mode, amount, span = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = mode == 'in' and now + amount or amount
local last = redis.call('GET', sent)
if last and tonumber(string.match(last, '^%d+')) >= tonumber(number) then
  -- WAIT and WAITAOF cover the last write of a connection. This write makes them cover the jobs on a resend too.
  redis.call('EXPIRE', sent, 3600)
  -- The first send decided when the jobs are due.
  local n, first_at = string.match(last, '^(%d+):at:(%d+)$')
  return {0, now, n == number and tonumber(first_at) or at}
end
if name ~= '' then
  redis.call('SCARD', known)
end
local first = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')

local score = string.format('%.3f', at / 1000)
local pairs_ = {}
for i = 6, #ARGV do
  local payload = ARGV[i]
  if span > 0 then
    -- Expiry follows Redis time, not the producer's clock. Only this number in the payload is replaced.
    local head, tail = string.match(payload, '^(.*"expires":)%d+(,"at":%d+})$')
    if head then payload = head .. string.format('%d', now + span) .. tail end
  end
  pairs_[#pairs_ + 1] = score
  pairs_[#pairs_ + 1] = payload
end
redis.call('ZADD', scheduled, unpack(pairs_))
if name ~= '' then
  redis.call('SADD', known, name)
end
redis.call('SET', sent, string.format('%s:at:%d', number, at), 'EX', 3600)
if not first[2] or at / 1000 < tonumber(first[2]) then
  redis.pcall('ZADD', due, 0, '1')
end
return {1, now, at}
