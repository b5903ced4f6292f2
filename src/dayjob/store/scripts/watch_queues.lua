#!lua flags=allow-oom
--[[ watch_queues: log the queues whose oldest job has begun to wait too long, and those that are served in time again.

Called by: maintain.watch_queues
KEYS[1]  starved
KEYS[2]  events of starving queues
KEYS[3...]  3 per job name: queue, paused, held set
ARGV[1]  seconds that the oldest job of a queue may wait
ARGV[2...]  the job names, 200 at most; then 2 per name: jobs that wait under its keys, and since which second the oldest does
Returns  {how many queues starve; queue with a key of a wrong type, ...}
Atomic because: a queue that two leaders watch must be logged once.
]]
--@use time json event
local starved, events, most = KEYS[1], KEYS[2], tonumber(ARGV[1])

local now, second = redis_time()
local names = (#ARGV - 1) / 3
local before = names > 0 and redis.pcall('HMGET', starved, unpack(ARGV, 2, names + 1)) or {}
if before.err then
  redis.call('DEL', starved)
  before = {}
end
local found = { 0 }
for i = 2, names + 1 do
  local by_key, since = tonumber(ARGV[names + i * 2 - 2]), tonumber(ARGV[names + i * 2 - 1])
  local name, queue, paused, held = ARGV[i], unpack(KEYS, 3 * i - 3, 3 * i - 1)
  local size, starves = redis.pcall('LLEN', queue), false
  local off = redis.call('EXISTS', paused) == 1
  if type(size) ~= 'number' or type(redis.pcall('SCARD', held)) ~= 'number' then table.insert(found, queue) end
  if type(size) == 'number' and size > 0 and not off then
    -- When the job was enqueued or became due. Text inside a JSON string cannot contain a bare quote.
    local at = string.match(redis.call('LINDEX', queue, -1), '"t":(%d+)')
    starves = at ~= nil and second - tonumber(at) > most
  end
  if by_key > 0 and not off and type(size) == 'number' then
    size, starves = size + by_key, starves or second - since > most
  end
  if starves then found[1] = found[1] + 1 end
  if starves and not before[i - 1] then
    redis.call('HSET', starved, name, second)
    local jobs = ',"after":"starved","waiting":' .. string.format('%d', size) .. '}'
    log_event(events, now, '{"name":' .. json(name) .. jobs)
  elseif before[i - 1] and not starves then
    redis.call('HDEL', starved, name)
    -- A paused queue is not served: its pause is an event of its own.
    if not off then log_event(events, now, '{"name":' .. json(name) .. ',"after":"served"}') end
  end
end
return found
