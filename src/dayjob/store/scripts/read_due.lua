#!lua flags=no-writes
--[[ read_due: read the jobs that are due in scheduled or retry, and the time until the next one.

Called by: maintain.read_due
KEYS[1]  scheduled or retry
ARGV[1]  how many members at most
ARGV[2]  how many due members to skip, because they could not be moved
Returns  {Redis milliseconds; milliseconds until the next member becomes due, or -1; member, score, ...}
Atomic because: the due members and the wait for the next one must come from the same state.
]]
--@use time
local source, most, skip = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local STEP, MOST_BYTES = 10, 1048576

local now = redis_time()
local next_ = redis.call('ZRANGEBYSCORE', source, string.format('(%.3f', now / 1000), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local wait = -1
if next_[2] then
  wait = math.ceil(tonumber(next_[2]) * 1000 - now)
  if wait > 86400000 then wait = 86400000 end
end
local answer, bytes = {now, wait}, 0
local upto = string.format('%.3f', now / 1000)
for first = 0, most - 1, STEP do
  local count = math.min(STEP, most - first)
  local found = redis.call('ZRANGEBYSCORE', source, '-inf', upto, 'WITHSCORES', 'LIMIT', skip + first, count)
  for i = 1, #found do
    answer[#answer + 1] = found[i]
    bytes = bytes + #found[i]
  end
  if #found < count * 2 or bytes > MOST_BYTES then break end
end
return answer
