#!lua flags=allow-oom
--[[ undo: put jobs of the bin back where they were.

Called by: bin.undo
KEYS[1]  bin:<deletion>:<part>
KEYS[2]  bin
KEYS[3]  target: a queue, scheduled, retry, dead, done or broken
KEYS[4]  bell of the target; due for scheduled and retry; elsewhere the target again
KEYS[5]  known_jobs
KEYS[6]  totals
KEYS[7...]  unique keys that entries refer to, and 4 for each batch of a member: the batch, its bitmaps of members that ended, are
            dead, failed
ARGV[1]  what the target is: queue, later (scheduled and retry), set or broken
ARGV[2]  job name to add to known_jobs, for a target that is a queue
ARGV[3]  description of this part of the deletion, a member of bin
ARGV[4]  field of totals that counts the jobs
ARGV[5]  reopened, if members of batches are open again by this, or ""
ARGV[6...]  9 per entry: how many entries were ahead of it in the bin, from the right end, when the client read it; the entry exactly
            as the client read it; the job as it was; its score, or "" in a list; key index of its unique key or 0; value of that
            key; milliseconds for which it is taken; key index of its batch or 0, its numbers in the batch and in those above
Returns  {how many were put back; who holds the unique key of a job that stays in the bin for that reason, or false; how many stay
because a sorted set has the same bytes}
Jobs come back at the head of a list, so the last of the bin must be put back first. A set has them at their old scores.
Atomic because: a job must be in exactly one place, and two jobs must not wait under one unique key.
]]
--@use time check bell entry soonest workflow node membership
local part, bin, target, bell, known, totals = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local to, name, description, total, how = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local is_set = to == 'set' or to == 'later'

if is_set then redis.call('ZCARD', target) else redis.call('LLEN', target) end
if to == 'queue' then redis.call('SCARD', known) end
redis.call('ZCARD', bin)

local now = redis_time()
local read, moved, other, same, first = {bytes = 0}, 0, false, 0, false
for i = 6, #ARGV, 9 do
  local seen, entry, payload, score = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local unique, value, life = KEYS[tonumber(ARGV[i + 4])], ARGV[i + 5], ARGV[i + 6]
  local place = find_entry(part, 'queue', seen, entry, read)
  local holder = unique and redis.pcall('GET', unique)
  if place and holder then
    other = type(holder) == 'string' and holder or ''
  elseif place and is_set and redis.call('ZSCORE', target, payload) then
    same = same + 1
  elseif place then
    if to == 'queue' then redis.call('RPUSH', target, payload) end
    if to == 'broken' then redis.call('LPUSH', target, payload) end
    if to == 'later' and is_soonest(target, tonumber(score) * 1000) then first = true end
    if is_set then redis.call('ZADD', target, score, payload) end
    remove_entry(part, 'queue', place, entry)
    if unique then redis.call('SET', unique, value, 'PX', life) end
    local in_batch = tonumber(ARGV[i + 7])
    if how ~= '' and in_batch > 0 then note_member(in_batch, ARGV[i + 8], how, now, target, bell) end
    moved = moved + 1
  end
end

if redis.call('EXISTS', part) == 0 then redis.call('ZREM', bin, description) end
if moved > 0 and to == 'queue' then
  redis.call('SADD', known, name)
  ring(bell)
end
if first then ring(bell) end
if moved > 0 then redis.pcall('HINCRBY', totals, total, moved) end
return {moved, other, same}
