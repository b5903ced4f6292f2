#!lua flags=allow-oom
--[[ change_batch: cancel or close a batch, or note that members have ended or not.

Called by: batches.change_batch
KEYS[1]  batch
KEYS[2]  batch, bitmap of members that ended
KEYS[3]  batch, bitmap of dead members
KEYS[4]  batch, bitmap of members that failed
KEYS[5]  cancelled_batches
KEYS[6]  scheduled
KEYS[7]  due
KEYS[8...]  4 for each batch above this one, as for a member
ARGV[1]  batch id
ARGV[2]  cancel | close | check | completed | dead | reopened
ARGV[3]  numbers of this batch in those above it
ARGV[4...]  numbers of members, for completed, dead and reopened
Returns  1, or 0 if there is no such batch, or it was cancelled or closed before
Atomic because: the callbacks of a batch must be enqueued in the step that ends it.
]]
--@use time check workflow node membership
local batch, ended, dead, failed, cancelled, scheduled, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local id, what, above = ARGV[1], ARGV[2], ARGV[3]
local FIRST_ABOVE = 8

local now = redis_time()
if redis.call('HEXISTS', batch, 'total') == 0 then
  return 0
end
redis.call('ZCARD', cancelled)
redis.call('STRLEN', ended)
redis.call('STRLEN', dead)
local how
if what == 'cancel' then
  if redis.call('HSETNX', batch, 'cancelled', string.format('%d', now)) == 0 then return 0 end
  redis.call('HSET', batch, 'closed', '1')
  redis.call('ZADD', cancelled, string.format('%d', now), id)
  redis.call('ZREMRANGEBYSCORE', cancelled, '-inf', string.format('%d', now - 604800000))
  how = judge_batch(batch, ended, dead, now, scheduled, due)
elseif what == 'close' then
  if redis.call('HGET', batch, 'closed') == '1' then return 0 end
  redis.call('HSET', batch, 'closed', '1')
  how = judge_batch(batch, ended, dead, now, scheduled, due)
elseif what == 'check' then
  how = judge_batch(batch, ended, dead, now, scheduled, due)
else
  for i = 4, #ARGV do how = note_end(batch, ended, dead, failed, ARGV[i], what, now, scheduled, due) or how end
end
if how then note_member(FIRST_ABOVE, above, how, now, scheduled, due) end
return 1
