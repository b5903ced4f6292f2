#!lua
--[[ to_bin: take jobs out of a queue, a sorted set or broken, and keep them in the bin for a while.

Called by: bin.to_bin
KEYS[1]  source: a queue, scheduled, retry, dead, done or broken
KEYS[2]  bin
KEYS[3]  bin:<deletion>:<part>
KEYS[4]  totals
KEYS[5]  scheduled; where no entry is a member of a batch, the source again
KEYS[6]  due, or the source again
KEYS[7...]  unique keys that entries refer to, and 4 for each batch of a member: the batch, its bitmaps of members that ended, are
            dead, failed
ARGV[1]  what the source is: queue, set or broken
ARGV[2]  where undo puts the jobs back, as JSON
ARGV[3]  description of this part of the deletion, a member of bin
ARGV[4]  milliseconds for which the bin keeps it
ARGV[5]  field of totals that counts the jobs
ARGV[6]  completed, if members of batches end by this, or ""
ARGV[7...]  6 per entry: how many entries were ahead of it in its list when the client read it; the entry exactly as the client
            read it; key index of its unique key or 0; job id; key index of its batch or 0, its numbers in the batch and in
            those above
Returns  how many jobs went to the bin
An entry of the bin is a line of JSON (from; score; time to live and size of the unique key's value), that value, and the entry
as it was. Without entries, the call restarts the expiry of this part.
Atomic because: a job must be in exactly one place, and its unique key must be released with it. A full server refuses it,
because there a deletion must free memory.
]]
--@use time check entry owner workflow node membership
local source, bin, part, totals = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local scheduled, due = KEYS[5], KEYS[6]
local from, origin, description, keep, total, how = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]

local now = redis_time()
if from == 'set' then redis.call('ZCARD', source) else redis.call('LLEN', source) end
local size = redis.call('LLEN', part)
redis.call('ZCARD', bin)

local read, moved = {bytes = 0}, 0
for i = 7, #ARGV, 6 do
  local seen, entry, unique, id = tonumber(ARGV[i]), ARGV[i + 1], KEYS[tonumber(ARGV[i + 2])], ARGV[i + 3]
  local place = find_entry(source, from, seen, entry, read)
  if place then
    local score = from == 'set' and place or ''
    local holder = unique and redis.pcall('GET', unique)
    if not (holder and owns(entry, id, holder)) then holder = nil end
    local life = holder and redis.call('PTTL', unique) or 0
    local head = string.format('{"from":%s,"score":"%s","life":%.0f,"holder":%d}\n', origin, score, life, holder and #holder or 0)
    redis.call('RPUSH', part, head .. (holder or '') .. entry)
    remove_entry(source, from, place, entry)
    if holder then redis.call('DEL', unique) end
    local in_batch = tonumber(ARGV[i + 4])
    if how ~= '' and in_batch > 0 then note_member(in_batch, ARGV[i + 5], how, now, scheduled, due) end
    moved = moved + 1
  end
end

if moved + size > 0 then
  redis.call('PEXPIRE', part, keep)
  redis.call('ZREMRANGEBYSCORE', bin, '-inf', now)
  redis.call('ZADD', bin, now + keep, description)
  redis.call('PEXPIRE', bin, keep)
end
if moved > 0 then redis.pcall('HINCRBY', totals, total, moved) end
return moved
