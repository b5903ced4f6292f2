#!lua
--[[ put: store jobs of one name, for enqueuers in any language. The clients in this folder contain an exact copy of it.

KEYS[1]  sent:<slot>
KEYS[2]  queue, or scheduled
KEYS[3]  known_jobs
KEYS[4]  bell, or due
KEYS[5]  unique key, or KEYS[1] again where there is none
KEYS[6]  id:<id>, or KEYS[1] again where the caller did not choose the id
ARGV[1]  number of this request on its slot
ARGV[2]  job name
ARGV[3]  "now", "in" or "at"
ARGV[4]  milliseconds from now, or since the epoch; 0 for now
ARGV[5]  job id, for the unique key
ARGV[6]  milliseconds the unique key lives, counted from now; 0: thirty days after the job is due
ARGV[7]  milliseconds from now until the jobs expire, or 0. Above 0 each payload ends in "expires":<n>,"at":<n>}
ARGV[8...]  payloads, 500 at most; one where there is a unique key or a chosen id
Returns  {"stored" | "duplicate"; when it is due, Redis milliseconds; id of the holder of the unique key or ""}
Atomic because: a resend must find all or nothing, and two jobs with one key must not both get in.
]]
local sent, target, known, bell, unique, chosen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local number, name, mode, amount, id = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local life, span = tonumber(ARGV[6]), tonumber(ARGV[7])
local is_unique, is_chosen = unique ~= sent, chosen ~= sent

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = now
if mode == 'in' then at = now + amount end
if mode == 'at' then at = amount end

-- A resend, or a late copy: closing a socket does not recall what it sent.
local last = redis.call('GET', sent)
if last and tonumber(string.match(last, '^%d+')) >= tonumber(number) then
  local n, answer, first_at, holder = string.match(last, '^(%d+):(%a+):(-?%d+):(.*)$')
  if n == number then return {answer, tonumber(first_at), holder} end
  return {'stored', at, ''}
end
local function answered(answer, holder)
  redis.call('SET', sent, string.format('%s:%s:%d:%s', number, answer, at, holder), 'EX', 3600)
  return {answer, at, holder}
end

-- Check everything that a write below relies on: what a script wrote before an error stays written.
local function is_span(value) return value == 0 or value >= 1 and value < 1e15 end
if not (at > -1e15 and at < 1e15 and is_span(life) and is_span(span) and now + span < 1e15) then
  return redis.error_reply('ERR nothing was stored: the time to run, the life of the unique key or the expiry is out of range')
end
if span > 0 then
  -- Redis time decides when a job expires, not the clock of its enqueuer. Only that number is replaced.
  for i = 8, #ARGV do
    local head, tail = string.match(ARGV[i], '^(.*"expires":)%-?%d+(,"at":%-?%d+})$')
    if not head then
      return redis.error_reply('ERR nothing was stored: a payload does not end in "expires":<n>,"at":<n>}')
    end
    ARGV[i] = head .. string.format('%d', now + span) .. tail
  end
end
redis.call('SCARD', known)
local first = mode == 'now' and {} or redis.call('ZRANGE', target, 0, 0, 'WITHSCORES')
if is_chosen and redis.call('EXISTS', chosen) == 1 then
  return answered('stored', '')
end
if is_unique and redis.call('EXISTS', unique) == 1 then
  local holder = redis.pcall('GET', unique)
  return answered('duplicate', type(holder) == 'string' and holder or '')
end

for i = 8, #ARGV do
  if mode == 'now' then
    redis.call('LPUSH', target, ARGV[i])
  else
    redis.call('ZADD', target, string.format('%.3f', at / 1000), ARGV[i])
  end
end
if is_unique then
  if life == 0 then life = math.max(at - now, 0) + 2592000000 end
  redis.call('SET', unique, id, 'PX', string.format('%d', life))
end
if is_chosen then
  redis.call('SET', chosen, '1', 'EX', 86400)
end
redis.call('SADD', known, name)
-- A bell of a wrong type must not undo an enqueue; workers mend it.
if mode == 'now' or not first[2] or at / 1000 < tonumber(first[2]) then
  redis.pcall('ZADD', bell, 0, '1')
end
return answered('stored', '')
