#!lua flags=allow-oom
--[[ purge: delete the oldest jobs of a queue, and release the unique keys that they hold.

Called by: operate.purge
KEYS[1]  queue
KEYS[2]  totals
KEYS[3...]  unique keys that entries refer to
ARGV[1]  job name
ARGV[2...]  3 per entry, oldest first: payload exactly as the client read it, key index or 0, job id
Returns  how many were deleted
Atomic because: only jobs that the client has read may be deleted, and a unique key must be released with its job.
]]
local queue, totals, name = KEYS[1], KEYS[2], ARGV[1]

-- dayjob stores the job id in a unique key. gocraft's enqueuers store "1" or the job's JSON, which belongs to this job
-- as long as it has not been attempted.
local function owns(payload, id, holder)
  if holder == id then return true end
  if type(holder) ~= 'string' or not (holder == '1' or string.sub(holder, 1, 1) == '{') then return false end
  return not (string.find(payload, '"attempt":', 1, true) or string.find(payload, '"fails":', 1, true))
end
local dropped, begun = 0, false
for i = 2, #ARGV, 3 do
  local payload, key, job = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  if redis.call('LINDEX', queue, -1) == payload then
    redis.call('RPOP', queue)
    begun, dropped = true, dropped + 1
    if key > 0 and owns(payload, job, redis.pcall('GET', KEYS[key])) then
      redis.call('DEL', KEYS[key])
    end
  elseif begun then
    break
  end
end
if dropped > 0 then
  redis.pcall('HINCRBY', totals, 'deleted:' .. name, dropped)
end
return dropped
