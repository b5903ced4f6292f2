#!lua flags=allow-oom
--[[ sweep: move the attempts of a condemned pool to a queue, retry, dead or broken, and delete the pool when none is left.

Called by: maintain.sweep
KEYS[1]  condemned
KEYS[2]  held of the pool
KEYS[3]  state of the pool
KEYS[4]  status of the pool
KEYS[5]  dead
KEYS[6]  retry
KEYS[7]  broken
KEYS[8]  totals
KEYS[9]  due
KEYS[10]  events of rescued attempts
KEYS[11]  scheduled; where no entry is a member of a batch, due again
KEYS[12...]  7 per job name, or name and key: queue or partition, held set, bell, held set of the name, turns, blocked, debts;
             then the unique, result and history keys that entries refer to, and 4 for each batch of a member: the batch, its
             bitmaps of members that ended, are dead, failed
ARGV[1]  pool id
ARGV[2]  number of job names, or names with a key
ARGV[3...]  these names, <name> or <name>|<key>, then 16 per entry: kind, name index, token, payload, number, key index of the unique key, job id,
            key index of the result, result, key index of the history, record of the attempt, how many records the history
            keeps or 0 if that is not known, milliseconds to keep it; key index of its batch or 0, its numbers in the batch and in
            those above, completed | dead | failed
Returns  {1, or 0 when the pool is not condemned; attempts moved; attempts left}
Kinds of entries, named like the classes of outcome.py (number is 0 unless given here):
  reaped      payload goes to the head of its queue
  retried     payload goes to retry; number: delay in milliseconds
  died        payload goes to dead; number: 1 when it counts as a failure; result: the error as the job's result
  dropped     nothing is stored; number: 1 when it counts as a failure; result: the reason as the job's result
  cancelled   nothing is stored; result: the reason as the job's result
  unreadable  payload goes to broken
The unique key of an entry is released if the job owns it.
Atomic because: an attempt must be in exactly one place, and two sweepers may run at once.
]]
--@use check bell record json event turns workflow node membership answer
local condemned, held, state, status = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local dead, retry, broken, totals, due = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local rescues, scheduled = KEYS[10], KEYS[11]
local id, count = ARGV[1], tonumber(ARGV[2])
local STRIDE, FIRST_NAME, FIRST_KEY = 16, 2, 11

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not redis.call('ZSCORE', condemned, id) then
  return {0, 0, 0}
end
redis.call('HLEN', held)

local function writable(command, key)
  return good(redis.pcall(command, key))
end
local can = {
  died = writable('ZCARD', dead), retried = writable('ZCARD', retry), unreadable = writable('LLEN', broken),
  dropped = true, cancelled = true,
}
local moved, counts, rung, jobs = 0, {}, {}, {}
local function add(counter, name)
  local label = counter .. ':' .. name
  counts[label] = (counts[label] or 0) + 1
end

for i = FIRST_NAME + count + 1, #ARGV, STRIDE do
  local kind, index, token, payload = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3]
  local number, key, job = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]), ARGV[i + 6]
  local result = tonumber(ARGV[i + 7])
  local base = FIRST_KEY + (index - 1) * 7
  local queue, members, bell, label = KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], ARGV[FIRST_NAME + index]
  local of_name, turns, blocked, debts = KEYS[base + 4], KEYS[base + 5], KEYS[base + 6], KEYS[base + 7]
  local name, by_key = string.match(label, '^([^|]*)|?(.*)$')
  if label == name then by_key = nil end
  local able = can[kind]
  if kind == 'reaped' then able = writable('LLEN', queue) end
  if by_key then able = able and writable('ZCARD', turns) and writable('ZCARD', blocked) and writable('ZCARD', debts) end
  if able and redis.call('HEXISTS', held, token) == 1 then
    if kind == 'reaped' then
      redis.call('RPUSH', queue, payload)
      rung[bell] = true
      add('reaped', name)
    elseif kind == 'died' then
      redis.call('ZADD', dead, time[1], payload)
      if number == 1 then add('failed', name) end
      add('dead', name)
    elseif kind == 'retried' then
      -- As in exchange: gocraft's web UI can only read scores that are whole seconds.
      local at = now + number
      if number >= 10000 then at = math.ceil(at / 1000) * 1000 end
      redis.call('ZADD', retry, string.format('%.3f', at / 1000), payload)
      redis.pcall('ZADD', due, 0, '1')
      add('failed', name)
      add('retried', name)
    elseif kind == 'unreadable' then
      redis.call('RPUSH', broken, payload)
      add('broken', name)
    elseif kind == 'dropped' then
      if number == 1 then add('failed', name) end
      add('discarded', name)
    else
      add('cancelled', name)
    end
    if result > 0 then answer(KEYS[result], ARGV[i + 8], 86400000) end
    if key > 0 and redis.pcall('GET', KEYS[key]) == job then
      redis.call('DEL', KEYS[key])
    end
    redis.call('HDEL', held, token)
    local history = tonumber(ARGV[i + 9])
    if history > 0 then record(KEYS[history], ARGV[i + 10], tonumber(ARGV[i + 11]), tonumber(ARGV[i + 12]), now) end
    local in_batch = tonumber(ARGV[i + 13])
    if in_batch > 0 then note_member(in_batch, ARGV[i + 14], ARGV[i + 15], now, scheduled, due) end
    redis.pcall('SREM', members, id .. '/' .. token)
    if by_key then
      redis.pcall('SREM', of_name, id .. '/' .. token)
      -- Its key has a place again. The next exchange finds out whether it may start.
      redis.call('ZREM', blocked, by_key)
      take_turns(turns, blocked, debts, {by_key})
    end
    -- A waiting job may now fit under the limit.
    rung[bell] = true
    moved = moved + 1
    jobs[moved] = '{"id":' .. json(job) .. ',"name":' .. json(name) .. ',"became":' .. json(kind) .. '}'
  end
end

for label, n in pairs(counts) do
  redis.pcall('HINCRBY', totals, label, n)
end
for bell in pairs(rung) do
  ring(bell)
end
local left = redis.call('HLEN', held)
if moved > 0 then
  local cause = redis.pcall('HGET', state, 'cause')
  if type(cause) ~= 'string' then cause = '' end
  local list = '[' .. table.concat(jobs, ',') .. ']'
  log_event(rescues, now, '{"pool":' .. json(id) .. ',"cause":' .. json(cause) .. ',"jobs":' .. list .. '}')
end
if left == 0 then
  redis.call('DEL', state, status)
  redis.call('ZREM', condemned, id)
end
return {1, moved, left}
