-- Ring the bell of every queue that can be fetched from. KEYS has 6 keys for each of `names` after the index `first`: queue,
-- paused, held set, bell, turns, blocked. Returns how many were rung. Needs bell, limits and fetchable.
local function ring_queues(limits, parked, now, first, names)
  local limit = limits_of(limits, names)
  if not limit then return 0 end
  local some_parked = redis.pcall('ZCARD', parked)
  if type(some_parked) == 'table' then
    -- Only dayjob uses this key, so a value of a wrong type can be deleted. Exchanges park the names again.
    redis.call('DEL', parked)
    some_parked = 0
  end
  local rung = 0
  for i = 1, #names do
    local base = (i - 1) * 6 + first
    local by_key = limit[i] and string.find(limit[i], ' |', 1, true)
    local at = some_parked > 0 and redis.call('ZSCORE', parked, names[i])
    -- A parked name waits for a rate limit until then. One with keys must be fetched before if it has jobs to sort.
    local unsorted = by_key and (redis.pcall('LLEN', KEYS[base + 1]) or 0)
    local due = not at or tonumber(at) * 1000 <= now
    if due or (type(unsorted) == 'number' and unsorted > 0) then
      if at and due then redis.call('ZREM', parked, names[i]) end
      if (fetchable(base, limit[i], by_key and KEYS[base + 5], KEYS[base + 6], now) or 0) > 0 then
        ring(KEYS[base + 4])
        rung = rung + 1
      end
    end
  end
  return rung
end
