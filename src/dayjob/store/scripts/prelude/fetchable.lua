-- How many jobs can be fetched of a name: 0 while its queue is empty, paused or at its limit; nil if a key has a wrong
-- type. KEYS has its queue, paused, held set and bell after the index `base`. For a name with keys, `turns` has those with
-- jobs, and `blocked` those that wait, until the millisecond that is their score. Other rate limits are not considered.
local function fetchable(base, limit, turns, blocked, now)
  local waiting = redis.pcall('LLEN', KEYS[base + 1])
  if turns and type(waiting) == 'number' then
    local by_key, due = redis.pcall('ZCARD', turns), redis.pcall('ZCOUNT', blocked, '-inf', string.format('%d', now))
    waiting = type(by_key) == 'number' and type(due) == 'number' and waiting + by_key + due or nil
  end
  if waiting == 0 then return 0 end
  if type(waiting) ~= 'number' then return nil end
  if redis.call('EXISTS', KEYS[base + 2]) == 1 then return 0 end
  if not limit or string.sub(limit, 1, 2) == '- ' then return waiting end
  local running = redis.pcall('SCARD', KEYS[base + 3])
  if type(running) ~= 'number' then return nil end
  return math.min(waiting, math.max((tonumber(limit) or tonumber(string.match(limit, '^%S*')) or 0) - running, 0))
end
