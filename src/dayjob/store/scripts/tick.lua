#!lua
--[[ tick: enqueue the jobs for the new ticks of one schedule, unless another pool has done so.

Called by: produce.tick
KEYS[1]  periodic
KEYS[2]  queue
KEYS[3]  known_jobs
KEYS[4]  bell
KEYS[5]  totals
KEYS[6]  ticks of the schedule
ARGV[1]  schedule
ARGV[2]  job name
ARGV[3]  last tick as the caller read it, or "" when there was none
ARGV[4]  new last tick, or "" to only store Redis TIME if the schedule is new
ARGV[5]  how many ticks the policy for missed ticks skips
ARGV[6...]  2 per job: tick, payload; ascending
Returns  {how many were enqueued; last tick now stored; Redis milliseconds; 1 when an operator paused the schedule; why the
          last tick was replaced by TIME: "junk" when it was no number, "ahead" when it was in the future, else ""}
Atomic because: a tick must enqueue one job, however many schedulers run.
]]
--@use time bell event
local periodic, queue, known, bell, totals, ticks = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local schedule, name, seen, newest, missed = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

-- Seconds by which the last tick may be ahead of TIME, or a tick later than the one before, before it counts as a jump
-- of the clock.
local NEAR, FIRST_JOB = 60, 6
-- Seconds that one entry of the ticks covers, so that a schedule that ticks each second adds one entry per hour.
local ENTRY = 3600

local now, second = redis_time()
local stored = redis.call('HMGET', periodic, schedule, schedule .. '|off', schedule .. '|run', schedule .. '|ahead')
local last, off, run, ahead = stored[1], stored[2], stored[3] or '', stored[4] or ''
local function restart()
  redis.call('HSET', periodic, schedule, second, schedule .. '|run', second .. ' ' .. second)
end
if not last or not string.find(last, '^%d+$') or #last > 15 then
  restart()
  redis.call('HSETNX', periodic, schedule .. '|ticked', '')
  return {0, tonumber(second), now, off and 1 or 0, last and 'junk' or ''}
end
local from, upto = string.match(run, '^(%d+) (%d+)$')
if tonumber(last) > tonumber(second) + NEAR then
  -- The clock was ahead and has been set back. Record the ticks since the jump, so that none is enqueued twice.
  if upto ~= last then from = last end
  local windows = {from .. ' ' .. last}
  for first, final in string.gmatch(ahead, '(%d+) (%d+)') do
    if tonumber(final) > tonumber(second) and #windows < 8 then windows[#windows + 1] = first .. ' ' .. final end
  end
  redis.call('HSET', periodic, schedule .. '|ahead', table.concat(windows, ' '))
  restart()
  return {0, tonumber(second), now, off and 1 or 0, 'ahead'}
end
if newest == '' or seen ~= last or tonumber(newest) > tonumber(second) or tonumber(newest) <= tonumber(last) then
  return {0, tonumber(last), now, off and 1 or 0, ''}
end
local function enqueued_before(tick)
  for first, final in string.gmatch(ahead, '(%d+) (%d+)') do
    if tick >= tonumber(first) and tick <= tonumber(final) then return true end
  end
  return false
end
redis.call('LLEN', queue)
redis.call('SCARD', known)

local function log_ticks(what, count, first, final)
  local newest = redis.pcall('LINDEX', ticks, 0)
  local kind, n, begun = string.match(type(newest) == 'string' and newest or '', '"(%a+)":(%d+),"first":(%d+)')
  local goes_on = kind == what and tonumber(first) - tonumber(begun) < ENTRY
  if goes_on then count, first = count + tonumber(n), begun end
  local text = string.format('{"%s":%d,"first":%d,"last":%d}', what, count, first, final)
  if goes_on then
    redis.pcall('LSET', ticks, 0, string.format('%d ', now) .. text)
  else
    log_event(ticks, now, text, 100)
  end
end

local enqueued = 0
for i = FIRST_JOB, #ARGV, 2 do
  if off then
    missed = missed + 1
  elseif not enqueued_before(tonumber(ARGV[i])) then
    redis.call('LPUSH', queue, ARGV[i + 1])
    enqueued = enqueued + 1
  end
end
local first = ARGV[FIRST_JOB] or newest
if upto ~= last or tonumber(first) - tonumber(last) > NEAR then from = first end
redis.call('HSET', periodic, schedule, newest, schedule .. '|run', from .. ' ' .. newest)
if enqueued > 0 then
  redis.call('HSET', periodic, schedule .. '|ticked', ARGV[#ARGV - 1])
  redis.call('SADD', known, name)
  ring(bell)
  redis.pcall('HINCRBY', totals, 'ticked:' .. name, enqueued)
  log_ticks('fired', enqueued, ARGV[FIRST_JOB], ARGV[#ARGV - 1])
end
if missed > 0 then
  redis.pcall('HINCRBY', totals, 'missed:' .. name, string.format('%d', missed))
  log_ticks(off and 'paused' or 'missed', missed, last, newest)
end
return {enqueued, tonumber(newest), now, off and 1 or 0, ''}
