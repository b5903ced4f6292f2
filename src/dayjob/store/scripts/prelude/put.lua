-- Put new jobs into their queue, or into scheduled if they are due at a millisecond `at`. Wakes a pool, or the leader if no
-- job is due before them. Without a bell, the caller rings.
local function put_jobs(target, bell, payloads, at)
  if not at then
    redis.call('LPUSH', target, unpack(payloads))
  else
    local score, pairs_, soonest = string.format('%.3f', at / 1000), {}, is_soonest(target, at)
    for i = 1, #payloads do pairs_[i * 2 - 1], pairs_[i * 2] = score, payloads[i] end
    redis.call('ZADD', target, unpack(pairs_))
    if not soonest then bell = nil end
  end
  -- Enqueuers of all languages leave a bell of a wrong type alone; the next exchange replaces it.
  if bell then redis.pcall('ZADD', bell, 0, '1') end
end
