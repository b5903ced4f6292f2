-- The pools whose lease has expired, 100 at most. `watch` has the time of the last check: after an outage of Redis or a jump
-- of its clock, live pools may look expired, so none is for one lease, in which they can renew theirs.
local function expired_pools(pools, watch, lease, now)
  local seen = redis.pcall('HMGET', watch, 'last', 'quiet')
  if seen.err then
    -- Only these scripts write the key, so a wrong type is replaced. The missing values count as a gap, which is safe.
    redis.call('DEL', watch)
    seen = {'0', '0'}
  end
  local last, quiet, over = tonumber(seen[1] or now), tonumber(seen[2] or 0), {}
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
  return over
end
-- Move pools to condemned. `why` is "lease" or "exit"; `leads` is the id of the leader.
local function condemn_pools(pools, condemned, leader, members, died, ids, why, leads, now)
  for _, id in ipairs(ids) do
    redis.call('ZADD', condemned, 'NX', string.format('%d', math.floor(now / 1000)), id)
    if redis.call('ZREM', pools, id) == 1 then
      log_event(died, now, '{"pool":' .. json(id) .. ',"why":"' .. why .. '","about":' .. forget_member(members, id) .. '}')
    end
    -- The next pool that sends a heartbeat or starts can become the leader at once.
    if id == leads then redis.call('DEL', leader) end
  end
end
