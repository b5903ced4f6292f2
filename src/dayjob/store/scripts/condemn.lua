#!lua flags=allow-oom
--[[ condemn: move pools whose lease has expired, or whose process is known to be dead, from pools to condemned.

Called by: maintain.condemn
KEYS[1]  pools
KEYS[2]  condemned
KEYS[3]  watch
KEYS[4]  leader
KEYS[5]  members
KEYS[6]  events of dead pools
ARGV[1]  lease, milliseconds
ARGV[2]  1 to check leases too, 0 for the following ids only
ARGV[3...]  ids of pools whose process is known to be dead
Returns  ids of condemned pools, 100 at most
Atomic because: once condemned, a pool can no longer settle or fetch, so what it holds stays as it is until it is swept.
]]
--@use time json event member
local pools, condemned, watch, leader, members, died = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local lease, judge = tonumber(ARGV[1]), ARGV[2] == '1'

local now, second = redis_time()
redis.call('ZCARD', condemned)
redis.call('ZCARD', pools)
local leads = redis.pcall('GET', leader)
local over = {}
if judge then
  local seen = redis.pcall('HMGET', watch, 'last', 'quiet')
  if seen.err then
    -- Only this script writes the key, so a wrong type is replaced. The missing values count as a gap, which is safe.
    redis.call('DEL', watch)
    seen = {'0', '0'}
  end
  local last, quiet = tonumber(seen[1] or now), tonumber(seen[2] or 0)
  -- After an outage of Redis or a jump of its clock, live pools may look expired: give them one lease to renew.
  if now - last > 5000 or now < last then
    quiet = now + lease
    if now < last then
      -- The ends of the leases were computed with the clock before it jumped back: move them by the same amount.
      for _, id in ipairs(redis.call('ZRANGE', pools, 0, 999)) do
        redis.call('ZINCRBY', pools, string.format('%d', now - last), id)
      end
    end
  elseif quiet > now + lease then
    quiet = now + lease
  end
  if now >= quiet then
    over = redis.call('ZRANGEBYSCORE', pools, '-inf', string.format('(%d', now), 'LIMIT', 0, 100)
  end
  redis.call('HSET', watch, 'last', string.format('%d', now), 'quiet', string.format('%d', quiet))
end

local expired = #over
for i = 3, #ARGV do
  over[#over + 1] = ARGV[i]
end
for i, id in ipairs(over) do
  redis.call('ZADD', condemned, 'NX', second, id)
  if redis.call('ZREM', pools, id) == 1 then
    local why = i <= expired and '"lease"' or '"exit"'
    log_event(died, now, '{"pool":' .. json(id) .. ',"why":' .. why .. ',"about":' .. forget_member(members, id) .. '}')
  end
  -- The next pool that sends a heartbeat or starts can become the leader at once.
  if id == leads then redis.call('DEL', leader) end
end
return redis.call('ZRANGE', condemned, 0, 99)
