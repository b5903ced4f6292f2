#!lua flags=no-writes
--[[ page: read entries of a list or a sorted set, from a rank on or after a cursor.

Called by: inspect.page, inspect.peek, broken.page, bin.read_part
KEYS[1]  the list or sorted set
ARGV[1]  list or set
ARGV[2]  1 to begin at the right of a list, where jobs are fetched, or with the highest scores
ARGV[3]  how many entries at most
ARGV[4]  after how many bytes to stop
ARGV[5]  rank to begin at, counted in the order of the page; "" to begin after the cursor, for a sorted set
ARGV[6]  score of the cursor, whose member may have been removed
ARGV[7]  member of the cursor, or the beginning of a long one
Returns  {Redis milliseconds; how many entries there are; rank of the first one returned; entry, ... or member, score, ...}
Atomic because: the entries and the total must come from the same state, and the rank of the cursor changes when members are added
or removed.
]]
--@use time
local key, is_list, reverse = KEYS[1], ARGV[1] == 'list', ARGV[2] == '1'
local most, most_bytes, rank = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local score, member = tonumber(ARGV[6]), ARGV[7]
local CHUNK = 8

local now = redis_time()
local total = is_list and redis.call('LLEN', key) or redis.call('ZCARD', key)

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
    local item = redis.call('ZRANGE', key, middle, middle, 'WITHSCORES')
    if order(item[1], tonumber(item[2])) >= least then high = middle else low = middle + 1 end
  end
  return low
end

local function read(from, upto)
  if is_list and not reverse then return redis.call('LRANGE', key, from, upto) end
  if not is_list and reverse then return redis.call('ZRANGE', key, from, upto, 'REV', 'WITHSCORES') end
  if not is_list then return redis.call('ZRANGE', key, from, upto, 'WITHSCORES') end
  local found, turned = redis.call('LRANGE', key, -upto - 1, -from - 1), {}
  for i = #found, 1, -1 do turned[#turned + 1] = found[i] end
  return turned
end

local first
if rank ~= '' then
  first = tonumber(rank)
elseif reverse then
  first = total - position(0)
else
  first = position(1)
end

local answer, bytes, taken = {now, total, first}, 0, 0
while taken < most and bytes < most_bytes do
  local found = read(first + taken, first + taken + math.min(CHUNK, most - taken) - 1)
  if #found == 0 then break end
  for i = 1, #found do
    answer[#answer + 1] = found[i]
    bytes = bytes + #found[i]
  end
  taken = taken + (is_list and #found or #found / 2)
end
return answer
