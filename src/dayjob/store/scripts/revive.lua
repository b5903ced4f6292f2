#!lua
--[[ revive: put a dead job back into its queue, take its unique key again and delete its stored error.

Called by: operate.revive
KEYS[1]  dead
KEYS[2]  queue
KEYS[3]  known_jobs
KEYS[4]  bell
KEYS[5]  totals
KEYS[6]  unique key; without one, dead again
KEYS[7]  result:<id>
ARGV[1]  member, exactly as the operator's client read it
ARGV[2]  payload for the queue
ARGV[3]  job name
ARGV[4]  job id where there is a unique key, else ""
Returns  {"moved" | "gone" | "taken"; id of the job that holds the unique key, or ""}
Atomic because: a job must be in exactly one place, two jobs must not wait under one unique key, and a caller that waits
for the result must not get the error of an earlier attempt.
]]
--@use bell
local dead, queue, known, bell, totals, unique = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local result = KEYS[7]
local member, payload, name, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local THIRTY_DAYS = 2592000

if not redis.call('ZSCORE', dead, member) then
  return {'gone', ''}
end
redis.call('LLEN', queue)
redis.call('SCARD', known)
if id ~= '' then
  local holder = redis.call('GET', unique)
  if holder and holder ~= id then
    return {'taken', holder}
  end
end

redis.call('LPUSH', queue, payload)
if id ~= '' then
  redis.call('SET', unique, id, 'EX', THIRTY_DAYS)
end
redis.call('ZREM', dead, member)
redis.call('DEL', result)
redis.call('SADD', known, name)
ring(bell)
redis.pcall('HINCRBY', totals, 'revived:' .. name, 1)
return {'moved', ''}
