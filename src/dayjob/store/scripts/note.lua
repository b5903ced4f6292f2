#!lua flags=allow-oom
--[[ note: write down what an operator did, and forget the oldest lines.

Called by: audit.note
KEYS[1]  audit
ARGV[1]  how many lines to keep
ARGV[2]  the line, JSON
Returns  how many lines there are
Atomic because: the time is the server's, and the list stays short whoever writes.
]]
local audit, most, line = KEYS[1], tonumber(ARGV[1]), ARGV[2]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('LPUSH', audit, string.format('%d ', now) .. line)
redis.call('LTRIM', audit, 0, most - 1)
return redis.call('LLEN', audit)
