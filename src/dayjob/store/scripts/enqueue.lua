#!lua
--[[ enqueue: put jobs of one name at the end of their queue and ring its bell.

Called by: produce.enqueue
KEYS[1]  sent:<slot>
KEYS[2]  queue
KEYS[3]  known_jobs
KEYS[4]  bell
ARGV[1]  number of this request on its slot
ARGV[2]  job name to add to known_jobs, or "" when the enqueuer added it recently
ARGV[3]  1 to return Redis time and keep the slot for another hour; enqueuers set it every few seconds
ARGV[4]  milliseconds from now until the jobs expire, or 0
ARGV[5...]  payloads, 500 at most
Returns  {1 when stored now, 0 when this request was stored before; Redis milliseconds, or 0 when not asked for}
Atomic because: a resend must find either all of its jobs stored and its number recorded, or nothing.
]]
--@use time sent enqueued
local sent, queue, known, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local number, name, fresh, span = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])

local now = 0
if fresh or span > 0 then now = redis_time() end
local last, again = begin_request(sent, number, known, name)
if again then
  return {0, now}
end

if span > 0 then
  -- Not at the top: most jobs do not expire, and making a function costs as much as some commands.
  --@use expiry
  for i = 5, #ARGV do ARGV[i] = with_expiry(ARGV[i], now + span) end
end
redis.call('LPUSH', queue, unpack(ARGV, 5))
end_request(sent, number, fresh or not last, known, name, bell)
return {1, now}
