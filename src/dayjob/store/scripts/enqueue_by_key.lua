#!lua
--[[ enqueue_by_key: put jobs of one name at the end of the partitions of their keys and ring its bell.

Called by: produce.enqueue_by_key
KEYS[1]  sent:<slot>
KEYS[2]  queue
KEYS[3]  known_jobs
KEYS[4]  bell
KEYS[5]  limits
KEYS[6]  turns
KEYS[7]  blocked
KEYS[8]  debts
KEYS[9...]  the partition of each key
ARGV[1]  number of this request on its slot
ARGV[2]  job name to add to known_jobs, or "" when the enqueuer added it recently
ARGV[3]  1 to return Redis time and keep the slot for another hour; enqueuers set it every few seconds
ARGV[4]  milliseconds from now until the jobs expire, or 0
ARGV[5]  job name
ARGV[6]  the arguments by which this enqueuer computed the keys
ARGV[7]  number of keys
ARGV[8...]  the keys, then 2 per job: key index, payload; 500 jobs at most
Returns  {1 when stored now, 0 when this request was stored before; Redis milliseconds, or 0 when not asked for}
Jobs go to the queue, where a pool sorts them, if Redis has another key for the name, or if others wait there.
Atomic because: a resend must find either all of its jobs stored and its number recorded, or nothing, and a job must not
overtake those of its key that wait to be sorted.
]]
--@use time sent enqueued turns by_key
local sent, queue, known, bell, limits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local turns, blocked, debts = KEYS[6], KEYS[7], KEYS[8]
local number, add, fresh, span = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local name, by, keys = ARGV[5], ARGV[6], tonumber(ARGV[7])
local FIRST_KEY, FIRST_ARG = 8, 7

local now = 0
if fresh or span > 0 then now = redis_time() end
local last, again = begin_request(sent, number, known, add)
if again then
  return {0, now}
end
local direct = goes_by_key(limits, queue, name, by)
if direct then
  redis.call('ZCARD', turns)
  redis.call('ZCARD', blocked)
  redis.call('ZCARD', debts)
  for k = 1, keys do redis.call('LLEN', KEYS[FIRST_KEY + k]) end
end

if span > 0 then
  --@use expiry
  for i = FIRST_ARG + keys + 2, #ARGV, 2 do ARGV[i] = with_expiry(ARGV[i], now + span) end
end
for i = FIRST_ARG + keys + 1, #ARGV, 2 do
  local list = direct and KEYS[FIRST_KEY + ARGV[i]] or queue
  redis.call('LPUSH', list, ARGV[i + 1])
end
if direct then take_turns(turns, blocked, debts, {unpack(ARGV, FIRST_ARG + 1, FIRST_ARG + keys)}) end
end_request(sent, number, fresh or not last, known, add, bell)
return {1, now}
