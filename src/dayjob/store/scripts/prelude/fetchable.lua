-- The limits of job names by their index, false for a name without one; nil if the key has a wrong type.
local function limits_of(limits, names)
  local found = {}
  for first = 1, #names, 500 do
    local some = redis.pcall('HMGET', limits, unpack(names, first, math.min(first + 499, #names)))
    if some.err then return nil end
    for i = 1, #some do found[first + i - 1] = some[i] end
  end
  return found
end
-- How many jobs can be fetched of a name: 0 while its queue is empty, paused or at its limit; nil if a key has a wrong
-- type. KEYS has its queue, paused, held set and bell after the index `base`.
local function fetchable(base, limit)
  local waiting = redis.pcall('LLEN', KEYS[base + 1])
  if waiting == 0 then return 0 end
  if type(waiting) ~= 'number' then return nil end
  if redis.call('EXISTS', KEYS[base + 2]) == 1 then return 0 end
  if not limit then return waiting end
  local running = redis.pcall('SCARD', KEYS[base + 3])
  if type(running) ~= 'number' then return nil end
  return math.min(waiting, math.max((tonumber(limit) or 0) - running, 0))
end
