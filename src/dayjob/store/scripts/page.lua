#!lua flags=no-writes
--[[ page: read members of a sorted set, from a rank on or after a cursor. The cursor's member may have been removed.

Called by: inspect.page
KEYS[1]  the sorted set
ARGV[1]  1 for the highest scores first
ARGV[2]  how many members at most
ARGV[3]  after how many bytes to stop
ARGV[4]  rank to begin at, counted in the order of the page; "" to begin after the cursor
ARGV[5]  score of the cursor
ARGV[6]  member of the cursor, or the beginning of a long one
Returns  {Redis milliseconds; how many members there are; rank of the first one returned; member, score, ...}
Atomic because: the rank of the cursor changes when members are added or removed.
]]
--@use time
local set = KEYS[1]
local reverse, most, most_bytes, rank = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local score, member = tonumber(ARGV[5]), ARGV[6]

local now = redis_time()
local total = redis.call('ZCARD', set)

-- Redis sorts members by bytes. Lua's < depends on the locale of the server.
local function order(other, other_score)
  if other_score ~= score then return other_score < score and -1 or 1 end
  if string.sub(other, 1, #member) == member then return 0 end
  for i = 1, #member do
    local one, two = string.byte(other, i) or -1, string.byte(member, i)
    if one ~= two then return one < two and -1 or 1 end
  end
  return 0
end

-- The rank of the first member whose order is not below `least`.
local function position(least)
  local low, high = 0, total
  while low < high do
    local middle = math.floor((low + high) / 2)
    local item = redis.call('ZRANGE', set, middle, middle, 'WITHSCORES')
    if order(item[1], tonumber(item[2])) >= least then high = middle else low = middle + 1 end
  end
  return low
end

local first
if rank ~= '' then
  first = tonumber(rank)
elseif reverse then
  first = total - position(0)
else
  first = position(1)
end

local answer, bytes, taken, chunk = {now, total, first}, 0, 0, 8
while taken < most and bytes < most_bytes do
  local from = first + taken
  local upto = from + math.min(chunk, most - taken) - 1
  local found
  if reverse then
    found = redis.call('ZRANGE', set, from, upto, 'REV', 'WITHSCORES')
  else
    found = redis.call('ZRANGE', set, from, upto, 'WITHSCORES')
  end
  if #found == 0 then break end
  for i = 1, #found do
    answer[#answer + 1] = found[i]
    bytes = bytes + #found[i]
  end
  taken = taken + #found / 2
end
return answer
