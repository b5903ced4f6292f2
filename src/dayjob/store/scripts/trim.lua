#!lua flags=allow-oom
--[[ trim: drop members of dead or done that exceed its cap, and release the unique keys that they hold.

Called by: maintain.trim
KEYS[1]  dead or done
KEYS[2]  totals
KEYS[3...]  unique keys that entries refer to
ARGV[1]  field of totals that counts them
ARGV[2...]  3 per entry: member, key index or 0, job id
Returns  how many were dropped
Atomic because: a unique key must be released with its job.
]]
local source, totals, label = KEYS[1], KEYS[2], ARGV[1]

-- dayjob stores the job id in a unique key. gocraft's enqueuers store "1" or the job's JSON, which belongs to this job
-- as long as it has not been attempted.
local function owns(payload, id, holder)
  if holder == id then return true end
  if type(holder) ~= 'string' or not (holder == '1' or string.sub(holder, 1, 1) == '{') then return false end
  return not (string.find(payload, '"attempt":', 1, true) or string.find(payload, '"fails":', 1, true))
end
redis.call('ZCARD', source)
local dropped = 0
for i = 2, #ARGV, 3 do
  local member, key, job = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  if redis.call('ZREM', source, member) == 1 then
    dropped = dropped + 1
    if key > 0 and owns(member, job, redis.pcall('GET', KEYS[key])) then
      redis.call('DEL', KEYS[key])
    end
  end
end
if dropped > 0 then
  redis.pcall('HINCRBY', totals, label, dropped)
end
return dropped
