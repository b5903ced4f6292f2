-- The index of the entry at this place of a list: places count from the right end of a queue, from the left end of others.
local function index_of(right, place)
  return right and -1 - place or place
end
-- Where an entry is now: its score in a sorted set, its place in a list; nil or false if it has gone. Since the client read a
-- list, jobs that were given back (50 at most) may have come ahead of the entry, and entries ahead of it (1,000 at most) may have
-- left. `kind` is set, queue, or another word for other lists. One call reads 1 MiB at most; `read` counts it.
local function find_entry(source, kind, seen, entry, read)
  if kind == 'set' then return redis.call('ZSCORE', source, entry) end
  local right = kind == 'queue'
  if redis.call('LINDEX', source, index_of(right, seen)) == entry then return seen end
  local last, least = seen + 50, math.max(seen - 1000, 0)
  while last >= least and read.bytes < 1048576 do
    local first = math.max(last - 49, least)
    local low, high = index_of(right, first), index_of(right, last)
    local found = redis.call('LRANGE', source, math.min(low, high), math.max(low, high))
    local place
    for i = 1, #found do
      read.bytes = read.bytes + #found[i]
      if found[i] == entry then place = first + (right and #found - i or i - 1) end
    end
    if place then return place end
    last = first - 1
  end
end
-- Remove an entry that find_entry found. Redis removes list entries by value only, so replace the entry with a value that occurs
-- nowhere else first.
local function remove_entry(source, kind, place, entry)
  if kind == 'set' then
    redis.call('ZREM', source, entry)
  else
    redis.call('LSET', source, index_of(kind == 'queue', place), 'dayjob:deleted:')
    redis.call('LREM', source, kind == 'queue' and -1 or 1, 'dayjob:deleted:')
  end
end
