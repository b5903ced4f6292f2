#!lua
--[[ admit: enqueue or schedule one job that has a unique key, an id chosen by its caller, or both.

Called by: produce.admit
KEYS[1]  sent:<slot>
KEYS[2]  queue, or scheduled
KEYS[3]  known_jobs
KEYS[4]  bell, or due
KEYS[5]  unique key; without one, id:<id> again
KEYS[6]  id:<id>; where the caller chose no id, the unique key again
KEYS[7]  limits; this and the next only for a job with a key that runs now
KEYS[8]  turns
KEYS[9]  blocked
KEYS[10]  debts
KEYS[11]  the partition of its key
ARGV[1]  number of this request on its slot
ARGV[2]  job name to add to known_jobs, or "" when the enqueuer added it recently
ARGV[3]  "now", "in" or "at"
ARGV[4]  milliseconds from now, or since the epoch; 0 for now
ARGV[5]  payload
ARGV[6]  job id
ARGV[7]  1 when there is a unique key
ARGV[8]  1 when the caller chose the id
ARGV[9]  milliseconds until the unique key expires; 0 for thirty days after the job is due
ARGV[10]  milliseconds from now until the job expires, or 0
ARGV[11]  digest to keep under id:<id> instead of the payload, or "" to keep the payload
ARGV[12]  job name; this and the next only for a job with a key
ARGV[13]  the arguments by which the enqueuer computed the key
ARGV[14]  the key
Returns  {"stored" | "again" for a resend | "existed" for a chosen id that was stored before | "duplicate"; Redis milliseconds; due milliseconds; id of the job that holds the unique key, or ""; value of id:<id> for "existed", otherwise ""}
Atomic because: of two jobs with the same unique key or the same chosen id, only one may be stored.
]]
--@use time sent expiry soonest put admitted
local sent, target, known, bell, unique, chosen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local number, name, mode, amount = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local payload, id, is_unique, is_chosen, life = ARGV[5], ARGV[6], ARGV[7] == '1', ARGV[8] == '1', tonumber(ARGV[9])
local span, digest = tonumber(ARGV[10]), ARGV[11]

local now = redis_time()
local at = now
if mode == 'in' then at = now + amount end
if mode == 'at' then at = amount end
-- Redis would refuse a larger time to live with an error after the job was already stored, so refuse it here.
if not (at < 1e15 and life < 1e15) then
  return redis.error_reply('ERR the time to run or the life of the unique key is out of range')
end

local function first_job()
  local value = redis.pcall('GET', chosen)
  return type(value) == 'string' and value or ''
end

local last, again = begin_request(sent, number, known, name)
if again then
  local n, holder = string.match(last, '^(%d+):duplicate:(.*)$')
  if n == number then return {'duplicate', now, at, holder, ''} end
  local stored_n, fate, first_at = string.match(last, '^(%d+):(%a+):(%d+)$')
  if stored_n ~= number then return {'again', now, at, '', ''} end
  if fate == 'existed' then return {fate, now, tonumber(first_at), '', first_job()} end
  return {'again', now, tonumber(first_at), '', ''}
end
if is_chosen and redis.call('EXISTS', chosen) == 1 then
  redis.call('SET', sent, string.format('%s:existed:%d', number, at), 'EX', 3600)
  return {'existed', now, at, '', first_job()}
end
if is_unique and redis.call('EXISTS', unique) == 1 then
  local holder = redis.pcall('GET', unique)
  if type(holder) ~= 'string' then holder = '' end
  redis.call('SET', sent, number .. ':duplicate:' .. holder, 'EX', 3600)
  return {'duplicate', now, at, holder, ''}
end

if #KEYS > 6 then
  --@use turns by_key
  local limits, turns, blocked, debts = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
  if goes_by_key(limits, target, ARGV[12], ARGV[13]) then
    redis.call('ZCARD', turns)
    redis.call('ZCARD', blocked)
    redis.call('ZCARD', debts)
    target = KEYS[11]
    redis.call('LLEN', target)
    take_turns(turns, blocked, debts, {ARGV[14]})
  end
end
if span > 0 then payload = with_expiry(payload, now + span) end
put_admitted({
  target = target, bell = bell, payloads = {payload}, at = mode ~= 'now' and at or nil, id = id, life = life, digest = digest,
  unique = is_unique and unique, chosen = is_chosen and chosen,
}, now)
if name ~= '' then
  redis.call('SADD', known, name)
end
redis.call('SET', sent, string.format('%s:stored:%d', number, at), 'EX', 3600)
return {'stored', now, at, '', ''}
