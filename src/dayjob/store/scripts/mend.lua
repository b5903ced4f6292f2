#!lua flags=allow-oom
--[[ mend: remove an entry from broken, and put its repaired job into a queue if there is one.

Called by: operate.mend, operate.drop_broken
KEYS[1]  broken
KEYS[2]  queue; to drop the entry, broken again
KEYS[3]  known_jobs
KEYS[4]  bell; to drop the entry, broken again
KEYS[5]  totals
ARGV[1]  index of the entry when the client read it, 10000 at most
ARGV[2]  the entry, exactly as the client read it
ARGV[3]  payload for the queue, or "" to drop the entry
ARGV[4]  job name, or "" to drop the entry
Returns  1 when the entry was found at that index or shortly before it, else 0
Atomic because: an entry must be in exactly one place.
]]
--@use bell
local broken, queue, known, bell, totals = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local seen, entry, payload, name = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local NEAR, CHUNK, MOST_BYTES = 1000, 50, 1048576

-- Entries are added at the right, so removals since the read can only have moved this one to the left.
local place
if redis.call('LINDEX', broken, seen) == entry then
  place = seen
else
  local upto, bytes = seen, 0
  local least = math.max(seen - NEAR, 0)
  while not place and upto >= least and bytes < MOST_BYTES do
    local from = math.max(upto - CHUNK + 1, least)
    local found = redis.call('LRANGE', broken, from, upto)
    for i = 1, #found do
      bytes = bytes + #found[i]
      if found[i] == entry then place = from + i - 1 end
    end
    upto = from - 1
  end
end
if not place then
  return 0
end
if payload ~= '' then
  redis.call('LLEN', queue)
  redis.call('SCARD', known)
  redis.call('LPUSH', queue, payload)
  redis.call('SADD', known, name)
  ring(bell)
end
local tombstone = 'dayjob:deleted:'
redis.call('LSET', broken, place, tombstone)
redis.call('LREM', broken, 1, tombstone)
redis.pcall('HINCRBY', totals, (payload ~= '' and 'mended:' or 'deleted:') .. name, 1)
return 1
