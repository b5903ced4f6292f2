#!lua flags=no-writes
--[[ queues: read the size, oldest job, pause and limit of queues.

Called by: inspect.queues
KEYS[1]  limits
KEYS[2...]  4 per job name: queue, paused, held set, bell
ARGV[1...]  the job names, 200 at most
Returns  {Redis milliseconds; per name {jobs waiting, or -1 when the key is no list; the oldest payload, only its end if
          it is long, or false; text of the pause, or false when the queue is not paused; limit, or -1; attempts counted
          against the limit; 1 while the bell rings; 1 when the name has keys, whose jobs are not in the queue}}
Atomic because: size, limit and pause of a queue must come from the same state.
]]
--@use time
local limits = KEYS[1]
local LONG = 4096

local function number(command, key)
  local answer = redis.pcall(command, key)
  return type(answer) == 'number' and answer or -1
end

local now = redis_time()
local limit = #ARGV > 0 and redis.call('HMGET', limits, unpack(ARGV)) or {}
local answer = {now}
for i = 1, #ARGV do
  local base = (i - 1) * 4 + 1
  local waiting, oldest = number('LLEN', KEYS[base + 1]), false
  if waiting > 0 then
    oldest = string.sub(redis.call('LINDEX', KEYS[base + 1], -1), -LONG)
  end
  local paused, rung = false, redis.call('EXISTS', KEYS[base + 4])
  if redis.call('EXISTS', KEYS[base + 2]) == 1 then
    -- Any value pauses the queue. Only a string can hold who paused it and when.
    paused = redis.pcall('GETRANGE', KEYS[base + 2], 0, 299)
    if type(paused) ~= 'string' then paused = '' end
  end
  -- 1e6 is the placeholder of change_limit: attempts are being counted, and no limit is enforced yet.
  -- A rule of rate limits may stand behind the number.
  local digits = limit[i] and string.match(limit[i], '^%S*')
  local by_key = limit[i] and string.find(limit[i], ' |', 1, true)
  local most = (not digits or digits == '1e6' or digits == '-') and -1 or tonumber(digits) or 0
  answer[i + 1] = {waiting, oldest, paused, most, number('SCARD', KEYS[base + 3]), rung, by_key and 1 or 0}
end
return answer
