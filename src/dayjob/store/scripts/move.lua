#!lua flags=allow-oom
--[[ move: take jobs out of a queue, a sorted set or broken, and put them into a queue, into dead or nowhere.

Called by: move.move
KEYS[1]  source: a queue, scheduled, retry, dead, done or broken
KEYS[2]  target: a queue or dead; to delete the jobs, the source again
KEYS[3]  totals
KEYS[4]  known_jobs
KEYS[5]  bell of the target; where the target is no queue, the source again
KEYS[6]  scheduled; where no entry is a member of a batch, the source again
KEYS[7]  due, or the source again
KEYS[8...]  unique and result keys that entries refer to, and 4 for each batch of a member: the batch, its bitmaps of members
            that ended, are dead, failed
ARGV[1]  what the source is: queue, set or broken
ARGV[2]  what the target is: queue, dead, or "" to delete the jobs
ARGV[3]  job name to add to known_jobs, for a target that is a queue
ARGV[4]  field of totals that counts them
ARGV[5]  the error that callers who wait for a result get, as JSON, for a target that is dead
ARGV[6]  how members of batches count from now on: completed, dead, reopened, or "" for no change
ARGV[7...]  8 per entry: how many entries were ahead of it in its list when the client read it; the entry exactly as the client
            read it; payload for the target; key index of its unique key or 0; job id; key index of its result or 0; key index of its
            batch or 0, its numbers in the batch and in those above
Returns  {how many were moved or deleted; who holds the unique key of an entry that was not moved for that reason, or false}
A job that goes into a queue takes its unique key, if it is free, and loses the result of its earlier attempts. Other jobs
release their unique key. A job that goes to dead gets the error as its result, for a day.
Atomic because: a job must be in exactly one place, positions in a queue change while jobs are fetched, a unique key must be
released with its job, two jobs must not wait under one unique key, and a caller that waits for a result must not get that of
an earlier attempt.
]]
--@use time check bell entry owner workflow node membership answer
local source, target, totals, known, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local scheduled, due = KEYS[6], KEYS[7]
local from, to, name, total, failure, how = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local THIRTY_DAYS = 2592000

local now, second = redis_time()
if from == 'set' then redis.call('ZCARD', source) else redis.call('LLEN', source) end
if to == 'dead' then redis.call('ZCARD', target) end
if to == 'queue' then
  redis.call('LLEN', target)
  redis.call('SCARD', known)
end

local read, moved, other = {bytes = 0}, 0, false
for i = 7, #ARGV, 8 do
  local seen, entry, payload, id = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2], ARGV[i + 4]
  local unique, result = KEYS[tonumber(ARGV[i + 3])], KEYS[tonumber(ARGV[i + 5])]
  local place = find_entry(source, from, seen, entry, read)
  local holder = unique and redis.pcall('GET', unique)
  if place and to == 'queue' and holder and holder ~= id then
    other = type(holder) == 'string' and holder or ''
  elseif place then
    if to == 'queue' then redis.call('LPUSH', target, payload) end
    if to == 'dead' then redis.call('ZADD', target, second, payload) end
    remove_entry(source, from, place, entry)
    if to == 'queue' then
      if unique then redis.call('SET', unique, id, 'EX', THIRTY_DAYS) end
      if result then redis.call('DEL', result) end
    elseif holder and owns(entry, id, holder) then
      redis.call('DEL', unique)
    end
    if to == 'dead' and result then answer(result, failure, 86400000) end
    local in_batch = tonumber(ARGV[i + 6])
    if how ~= '' and in_batch > 0 then note_member(in_batch, ARGV[i + 7], how, now, scheduled, due) end
    moved = moved + 1
  end
end

if moved > 0 and to == 'queue' then
  redis.call('SADD', known, name)
  ring(bell)
end
if moved > 0 then redis.pcall('HINCRBY', totals, total, moved) end
return {moved, other}
