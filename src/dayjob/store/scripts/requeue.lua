#!lua flags=allow-oom
--[[ requeue: move due members of scheduled or retry to their queues.

Called by: maintain.requeue
KEYS[1]  scheduled or retry
KEYS[2]  known_jobs
KEYS[3]  broken
KEYS[4]  totals
KEYS[5]  scheduled
KEYS[6]  due
KEYS[7...]  2 per job name: queue, bell; then 4 for each batch of members that cannot be read
ARGV[1]  number of job names
ARGV[2]  1 to move due members only, 0 to move them before they are due, for an operator
ARGV[3...]  the job names, then 5 per entry: name index (0: to broken), member as it was read, payload or broken entry; for broken
            entries the key index of its batches or 0, and its numbers in them
Returns  how many were moved
Atomic because: a member must be in exactly one place, and two requeuers may run at once; a member of a batch that cannot be read
ends in the step that moves it to broken.
]]
--@use time check bell workflow node membership
local source, known, broken, totals, scheduled, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local count, strict = tonumber(ARGV[1]), ARGV[2] == '1'
local FIRST_NAME, FIRST_KEY, STRIDE = 2, 6, 5

local now = redis_time()
redis.call('ZCARD', source)
local usable = {[0] = good(redis.pcall('LLEN', broken))}
for i = 1, count do
  usable[i] = good(redis.pcall('LLEN', KEYS[FIRST_KEY + i * 2 - 1]))
end

local members, scores = {}, {}
for i = FIRST_NAME + count + 1, #ARGV, STRIDE do members[#members + 1] = ARGV[i + 1] end
if #members > 0 then scores = redis.call('ZMSCORE', source, unpack(members)) end

local moved, is_moved, queued, bad = {}, {}, {}, 0
for n, member in ipairs(members) do
  local i = FIRST_NAME + count + 1 + (n - 1) * STRIDE
  local index, payload, score = tonumber(ARGV[i]), ARGV[i + 2], scores[n]
  if score and (not strict or tonumber(score) * 1000 <= now) and usable[index] and not is_moved[member] then
    if index == 0 then
      redis.call('RPUSH', broken, payload)
      bad = bad + 1
      if ARGV[i + 3] ~= '0' then note_member(tonumber(ARGV[i + 3]), ARGV[i + 4], 'dead', now, scheduled, due) end
    else
      queued[index] = queued[index] or {}
      table.insert(queued[index], payload)
    end
    is_moved[member] = true
    moved[#moved + 1] = member
  end
end

for index, payloads in pairs(queued) do
  redis.call('LPUSH', KEYS[FIRST_KEY + index * 2 - 1], unpack(payloads))
end
if #moved > 0 then redis.call('ZREM', source, unpack(moved)) end
for index in pairs(queued) do
  redis.pcall('SADD', known, ARGV[FIRST_NAME + index])
  ring(KEYS[FIRST_KEY + index * 2])
end
if bad > 0 then
  redis.pcall('HINCRBY', totals, 'broken:', bad)
end
return #moved
