-- Whether new jobs of a name go straight to the partition of their key: Redis must have the same key for the name, and no
-- older job may wait in the queue to be sorted.
local function goes_by_key(limits, queue, name, by)
  local rule = redis.call('HGET', limits, name)
  return rule and string.match(rule, ' |(%S+) ') == by and redis.call('LLEN', queue) == 0
end
