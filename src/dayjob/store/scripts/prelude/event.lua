-- Add an event to the list of its kind, newest first, which keeps the last `most`, or 500. A key of a wrong type is replaced. No
-- trouble with an event may fail a script.
local function log_event(key, now, text, most)
  local line = string.format('%d ', now) .. text
  if type(redis.pcall('LPUSH', key, line)) == 'table' then
    redis.pcall('DEL', key)
    redis.pcall('LPUSH', key, line)
  end
  redis.pcall('LTRIM', key, 0, (most or 500) - 1)
  redis.pcall('EXPIRE', key, 7776000)
end
