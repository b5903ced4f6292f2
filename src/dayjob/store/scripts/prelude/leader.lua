-- Log that a pool has become the leader, unless it was the last one before.
local function log_leader(key, now, id)
  local newest = redis.pcall('LINDEX', key, 0)
  local before = type(newest) == 'string' and string.match(newest, '"pool":"([^"]*)"') or ''
  if before ~= id then log_event(key, now, '{"pool":' .. json(id) .. ',"before":' .. json(before) .. '}') end
end
