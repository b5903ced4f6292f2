-- Redis time: milliseconds since the epoch as a number, seconds as text.
local function redis_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000), time[1]
end
