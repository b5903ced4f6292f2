#!lua flags=allow-oom
--[[ check_server: log that the server was restarted, or that another one has taken over.

Called by: maintain.check_server
KEYS[1]  watch
KEYS[2]  events of the server
ARGV[1]  run id of the server as the caller saw it last, for a server that lost its data; or ""
Returns  run id of the server; "" when this Redis user may not read it
Atomic because: two leaders may notice the same restart, and it must be logged once.
]]
--@use time json event
local watch, events, seen = KEYS[1], KEYS[2], ARGV[1]
-- Seconds of uptime up to which another run id means a restart, not a takeover by a server that ran already.
local RECENT = 120

local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
if run == '' then
  return ''
end
local before = redis.pcall('HGET', watch, 'run')
if type(before) ~= 'string' then before = seen end
if before ~= run then
  redis.pcall('HSET', watch, 'run', run)
  if before ~= '' then
    local now = redis_time()
    local uptime = tonumber(string.match(info, 'uptime_in_seconds:(%d+)')) or RECENT
    local after = uptime < RECENT and '"restarted"' or '"another server"'
    local at = uptime < RECENT and now - uptime * 1000 or now
    log_event(events, at, '{"before":' .. json(before) .. ',"after":' .. after .. '}')
  end
end
return run
