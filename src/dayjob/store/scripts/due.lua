#!lua flags=no-writes
--[[ due: read what is due in scheduled or retry, and when the next one is.

Called by: maintain.read_due
KEYS[1]  scheduled or retry
ARGV[1]  how many members at most
ARGV[2]  how many due ones to skip: they could not be moved
Returns  {Redis milliseconds; milliseconds until the next one that is not due, or -1; member, score, ...}
Atomic because: it is one look.
]]
local source, most, skip = KEYS[1], ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('ZRANGEBYSCORE', source, '-inf', string.format('%.3f', now / 1000), 'WITHSCORES', 'LIMIT', skip, most)
local next_ = redis.call('ZRANGEBYSCORE', source, string.format('(%.3f', now / 1000), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local wait = -1
if next_[2] then
  wait = math.ceil(tonumber(next_[2]) * 1000 - now)
  if wait > 86400000 then wait = 86400000 end
end
local answer = {now, wait}
for i = 1, #found do
  answer[i + 2] = found[i]
end
return answer
