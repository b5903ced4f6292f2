#!lua flags=allow-oom
--[[ mend: take an entry out of broken, for good or into a queue as the job that it was meant to be.

Called by: operate.mend, operate.drop_broken
KEYS[1]  broken
KEYS[2]  queue, or broken again to drop it
KEYS[3]  known_jobs
KEYS[4]  bell, or broken again to drop it
KEYS[5]  totals
ARGV[1]  index of the entry when it was seen, 10000 at most
ARGV[2]  the entry as it was seen
ARGV[3]  payload for the queue, or "" to drop it
ARGV[4]  job name, or "" to drop it
Returns  1 when it was still near that place, else 0
Atomic because: an entry must be in exactly one place.
]]
local broken, queue, known, bell, totals = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local seen, entry, payload, name = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local NEAR, CHUNK, MOST_BYTES = 1000, 50, 1048576

-- Entries come at the right: what was taken out since only moves it to the left.
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
  redis.pcall('ZADD', bell, 0, '1')
end
local tombstone = 'dayjob:deleted:'
redis.call('LSET', broken, place, tombstone)
redis.call('LREM', broken, 1, tombstone)
redis.pcall('HINCRBY', totals, (payload ~= '' and 'mended:' or 'deleted:') .. name, 1)
return 1
