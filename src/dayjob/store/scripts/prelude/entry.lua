-- The index of the entry at this place of a list: places count from the right end of a queue, from the left end of others.
local function index_of(right, place)
  return right and -1 - place or place
end
-- Where in its list an entry is now. Since the client read it, jobs that were given back (50 at most) may have come ahead of
-- it, and entries ahead of it (1,000 at most) may have left. One call reads 1 MiB at most; `read` counts it.
local function find_entry(list, right, seen, entry, read)
  if redis.call('LINDEX', list, index_of(right, seen)) == entry then return seen end
  local last, least = seen + 50, math.max(seen - 1000, 0)
  while last >= least and read.bytes < 1048576 do
    local first = math.max(last - 49, least)
    local low, high = index_of(right, first), index_of(right, last)
    local found = redis.call('LRANGE', list, math.min(low, high), math.max(low, high))
    local place
    for i = 1, #found do
      read.bytes = read.bytes + #found[i]
      if found[i] == entry then place = first + (right and #found - i or i - 1) end
    end
    if place then return place end
    last = first - 1
  end
end
-- Redis removes list entries by value only, so replace the entry with a value that occurs nowhere else first.
local function remove_entry(list, right, place)
  redis.call('LSET', list, index_of(right, place), 'dayjob:deleted:')
  redis.call('LREM', list, right and -1 or 1, 'dayjob:deleted:')
end
