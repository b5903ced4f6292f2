#!lua
--[[ revive: put a dead job back into its queue, with its unique key and without its old result.

Called by: operate.revive
KEYS[1]  dead
KEYS[2]  queue
KEYS[3]  known_jobs
KEYS[4]  bell
KEYS[5]  totals
KEYS[6]  unique key, or dead again where there is none
KEYS[7]  result:<id>
ARGV[1]  member as it was seen
ARGV[2]  payload for the queue
ARGV[3]  job name
ARGV[4]  job id where there is a unique key, else ""
Returns  {"moved" | "gone" | "taken"; id of the job that has the unique key, or ""}
Atomic because: a job must be in one place, and two jobs must not wait with one unique key, and
whoever waits for the result must not get the failure of the attempt before.
]]
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
redis.pcall('ZADD', bell, 0, '1')
redis.pcall('HINCRBY', totals, 'revived:' .. name, 1)
return {'moved', ''}
