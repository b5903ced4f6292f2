#!lua flags=allow-oom
--[[ unqueue: remove one waiting job from its queue, and move it to dead if asked to.

Called by: operate.unqueue
KEYS[1]  queue
KEYS[2]  dead
KEYS[3]  totals
KEYS[4]  unique key; without one, dead again
ARGV[1]  how many jobs were ahead of it when the client read it, 10000 at most
ARGV[2]  payload, exactly as the client read it
ARGV[3]  payload for dead, or "" to delete it
ARGV[4]  job name
ARGV[5]  job id where there is a unique key, else ""
ARGV[6]  the total that counts it: dead, deleted or cancelled
Returns  1 when the job was found near that position, else 0
Atomic because: a job must be in exactly one place, and positions change while jobs are fetched.
]]
local queue, dead, totals, unique = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local seen, payload, corpse, name, id, total = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
-- Since the client read it, jobs given back (BACK at most) may have come ahead of it, and jobs ahead of it (FETCHED at
-- most) may have been fetched.
local BACK, FETCHED, CHUNK, MOST_BYTES = 50, 1000, 50, 1048576

-- dayjob stores the job id in a unique key. gocraft's enqueuers store "1" or the job's JSON, which belongs to this job
-- as long as it has not been attempted.
local function owns(payload, id, holder)
  if holder == id then return true end
  if type(holder) ~= 'string' or not (holder == '1' or string.sub(holder, 1, 1) == '{') then return false end
  return not (string.find(payload, '"attempt":', 1, true) or string.find(payload, '"fails":', 1, true))
end
redis.call('ZCARD', dead)
local place
if redis.call('LINDEX', queue, -1 - seen) == payload then
  place = seen
else
  local from, bytes = seen + BACK, 0
  local least = math.max(seen - FETCHED, 0)
  while not place and from >= least and bytes < MOST_BYTES do
    local upto = math.max(from - CHUNK + 1, least)
    local found = redis.call('LRANGE', queue, -1 - from, -1 - upto)
    for i = 1, #found do
      bytes = bytes + #found[i]
      if found[i] == payload then place = upto + #found - i end
    end
    from = upto - 1
  end
end
if not place then
  return 0
end

local time = redis.call('TIME')
if corpse ~= '' then
  redis.call('ZADD', dead, time[1], corpse)
end
-- Redis removes list entries by value only, so replace the entry with a value that occurs nowhere else first.
local tombstone = 'dayjob:deleted:' .. name
redis.call('LSET', queue, -1 - place, tombstone)
redis.call('LREM', queue, -1, tombstone)
if unique ~= dead and owns(payload, id, redis.pcall('GET', unique)) then
  redis.call('DEL', unique)
end
redis.pcall('HINCRBY', totals, total .. ':' .. name, 1)
return 1
