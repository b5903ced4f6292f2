#!lua flags=allow-oom
--[[ log_action: add an entry to the audit log, and drop the oldest entries.

Called by: audit.log_action
KEYS[1]  audit
ARGV[1]  how many entries to keep
ARGV[2]  the entry, JSON
Returns  how many entries there are
Atomic because: entries must be in the order of their Redis times, and the list must stay bounded.
]]
--@use time
local audit, most, line = KEYS[1], tonumber(ARGV[1]), ARGV[2]

local now = redis_time()
redis.call('LPUSH', audit, string.format('%d ', now) .. line)
redis.call('LTRIM', audit, 0, most - 1)
return redis.call('LLEN', audit)
