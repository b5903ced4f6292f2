#!lua flags=allow-oom
--[[ unqueue: take one waiting job out of its queue, for good or to dead.

Called by: operate.unqueue
KEYS[1]  queue
KEYS[2]  dead
KEYS[3]  totals
KEYS[4]  unique key, or dead again where there is none
ARGV[1]  how many jobs were ahead of it when it was seen, 10000 at most
ARGV[2]  payload as it was seen
ARGV[3]  payload for dead, or "" to delete it
ARGV[4]  job name
ARGV[5]  job id where there is a unique key, else ""
ARGV[6]  the total that counts it: dead, deleted or cancelled
Returns  1 when it was still near that place, else 0
Atomic because: a job must be in exactly one place, and places move while jobs are fetched.
]]
local queue, dead, totals, unique = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local seen, payload, corpse, name, id, total = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
-- What was given back since is ahead of it, what was fetched since no longer is.
local BACK, FETCHED, CHUNK, MOST_BYTES = 50, 1000, 50, 1048576

-- A key holds the id of its job; one that an enqueuer of gocraft made for a job that never started holds "1" or JSON.
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
-- A list lets go of an entry by value only: give it one that is near the end and nowhere else.
local tombstone = 'dayjob:deleted:' .. name
redis.call('LSET', queue, -1 - place, tombstone)
redis.call('LREM', queue, -1, tombstone)
if unique ~= dead and owns(payload, id, redis.pcall('GET', unique)) then
  redis.call('DEL', unique)
end
redis.pcall('HINCRBY', totals, total .. ':' .. name, 1)
return 1
