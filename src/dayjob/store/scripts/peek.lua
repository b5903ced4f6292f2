#!lua flags=no-writes
--[[ peek: read entries of a list, from either end.

Called by: inspect.peek, inspect.broken
KEYS[1]  the list
ARGV[1]  1 to begin at the right, where jobs are fetched
ARGV[2]  how many entries to skip first
ARGV[3]  how many entries at most
ARGV[4]  after how many bytes to stop
Returns  {Redis milliseconds; how many entries there are; entry, ...}
Atomic because: the entries and the total must come from the same state.
]]
--@use time
local list = KEYS[1]
local right, first, most, most_bytes = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local now = redis_time()
local answer, bytes, taken, chunk = {now, redis.call('LLEN', list)}, 0, 0, 8
while taken < most and bytes < most_bytes do
  local from = first + taken
  local upto = from + math.min(chunk, most - taken) - 1
  local found = right and redis.call('LRANGE', list, -upto - 1, -from - 1) or redis.call('LRANGE', list, from, upto)
  if #found == 0 then break end
  for i = 1, #found do
    local entry = right and found[#found + 1 - i] or found[i]
    answer[#answer + 1] = entry
    bytes = bytes + #entry
  end
  taken = taken + #found
end
return answer
