-- Whether a job that is due at this millisecond would be the next one of a sorted set, so that the leader must be woken.
local function is_soonest(set, at)
  local first = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
  return not first[2] or at / 1000 < tonumber(first[2])
end
