#!lua
--[[ add_members: store jobs that join a batch, and create or close the batch.

Called by: batches.add_members
KEYS[1]  sent:<slot>
KEYS[2]  batch
KEYS[3]  batch, bitmap of members that ended
KEYS[4]  batch, bitmap of dead members
KEYS[5]  batches
KEYS[6]  scheduled
KEYS[7]  due
KEYS[8...]  4 for each batch above this one: as for a member; then the keys that entries refer to
ARGV[1]  number of this request on its slot
ARGV[2]  batch id
ARGV[3]  1 to close the batch: afterwards only its members can add jobs
ARGV[4]  number of fields of a new batch, or 0 if it exists
ARGV[5]  ids of the batches above, the nearest first, separated by spaces; "" for none or if this one exists
ARGV[6...]  field, value, ... of a new batch; then entries: kind, key index of the queue, of its bell, of known_jobs, of the unique
            key or 0, and of id:<id> or 0; when and how they are stored, as for the entries of exchange; name; number of
            arguments behind it, and these
Returns  {"stored" | "again" for a resend | "ended" if nothing can join any more; Redis milliseconds; members of the batch}
Atomic because: a member must be counted in the step that stores it, and a batch without members ends when it is closed.
]]
--@use time check sent expiry soonest put admitted children workflow node membership
local sent, batch, ended, dead, batches, scheduled, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local number, id, closes, fields, above = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4]), ARGV[5]
local KEEP_MS, FIRST_ABOVE = 16156800000, 8

local now = redis_time()
local _, again = begin_request(sent, number)
if again then
  return {'again', now, 0}
end
local known = redis.call('HMGET', batch, 'total', 'ended_at')
redis.call('STRLEN', ended)
redis.call('ZCARD', scheduled)
redis.call('ZCARD', batches)
if fields == 0 and (not known[1] or known[2]) then
  return {'ended', now, 0}
end

local position = 5
local created = {'total', 0, 'created', string.format('%d', now)}
for _ = 1, fields do
  created[#created + 1], created[#created + 2] = ARGV[position + 1], ARGV[position + 2]
  position = position + 2
end
local children = new_children(now, scheduled, due)
while position < #ARGV do
  local kind, count = ARGV[position + 1], tonumber(ARGV[position + 9])
  local one = {target = KEYS[tonumber(ARGV[position + 2])], bell = KEYS[tonumber(ARGV[position + 3])]}
  one.known, one.name = KEYS[tonumber(ARGV[position + 4])], ARGV[position + 8]
  one.unique, one.chosen = KEYS[tonumber(ARGV[position + 5])], KEYS[tonumber(ARGV[position + 6])]
  one.payloads = {unpack(ARGV, position + 10, position + 9 + count)}
  if kind == 'admitted' then
    local life, digest, job = string.match(table.remove(one.payloads), '^(%d+) (%S+) (.*)$')
    one.life, one.digest, one.id = tonumber(life), digest == '-' and '' or digest, job
  end
  children.add(id, one, ARGV[position + 7])
  position = position + 9 + count
end
if not children.fit(id) then
  return redis.error_reply('WRONGTYPE a queue of these jobs, or their batch, holds another type')
end

if fields > 0 and not known[1] then
  -- This batch becomes a member of the one above it, which has its own place in those above since its creation.
  local path, upper, parent = '', string.match(above, '^%S+'), KEYS[FIRST_ABOVE]
  if upper and redis.call('HEXISTS', parent, 'total') == 1 then
    local n = redis.call('HINCRBY', parent, 'total', 1) - 1
    redis.call('HSET', parent, 'nested:' .. n, id)
    path = string.format(',"%s",%d', upper, n) .. (redis.call('HGET', parent, 'above') or '')
  end
  created[#created + 1], created[#created + 2] = 'above', path
  redis.call('HSET', batch, unpack(created))
  keep_batch(batch)
  redis.call('SETBIT', ended, 0, 0)
  keep_batch(ended)
  redis.call('ZADD', batches, string.format('%d', now), id)
  redis.call('ZREMRANGEBYSCORE', batches, '-inf', string.format('%d', now - KEEP_MS))
end
children.store(id)
if closes then
  redis.call('HSET', batch, 'closed', '1')
  local how = judge_batch(batch, ended, dead, now, scheduled, due)
  local path = redis.call('HGET', batch, 'above') or ''
  local numbers = string.gsub(string.gsub(path, '"[^"]*"', ''), ',', ' ')
  if how then note_member(FIRST_ABOVE, numbers, how, now, scheduled, due) end
end
redis.call('SET', sent, number, 'EX', 3600)
return {'stored', now, tonumber(redis.call('HGET', batch, 'total'))}
