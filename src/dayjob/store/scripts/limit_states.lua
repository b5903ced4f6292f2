#!lua flags=no-writes
--[[ limit_states: read how much of each rate limit is used, and when its next job may start.

Called by: rates.limit_states
KEYS[1]  limits
KEYS[2...]  3 per limit: its rate or window, its hold, its overrides
ARGV[1...]  3 per limit: its name, or <name>|<key> for one key; rate | window, cost of the job that waits for it
Returns  {Redis milliseconds; for each limit: {units or starts that are used, rounded up; milliseconds until a job of that
          cost may start; milliseconds until its hold ends; 1 when a key has a wrong type}}
Atomic because: all limits must be read at the same time.
]]
--@use limits limiters
local time = redis.call('TIME')
local at_us = time[1] * 1000000 + time[2]
local now = math.floor(at_us / 1000)
local fields, answer = {}, {now}
for i = 1, #ARGV, 3 do
  fields[#fields + 1] = definition_field(ARGV[i])
  fields[#fields + 1] = definition_field(ARGV[i]) .. '|reset'
end
local definitions = limits_of(KEYS[1], fields) or {}
for l = 1, #ARGV / 3 do
  local definition, key = definitions[l * 2 - 1], string.match(ARGV[l * 3 - 2], '|(.*)$')
  if key then
    local own = redis.pcall('HGET', KEYS[l * 3 + 1], key)
    if type(own) == 'string' then definition = own end
  end
  local reset = key and definitions[l * 2] or nil
  local one = read_limiter(definition, ARGV[l * 3 - 1], KEYS[l * 3 - 1], KEYS[l * 3], at_us, reset)
  local used = one.size or 0
  if one.kind == 'rate' then used = math.max(0, math.ceil((one.full_at - at_us) / one.interval - 0.001)) end
  local rule = {one, cost = tonumber(ARGV[l * 3])}
  local wait = not one.wrong and spare(rule, at_us) == 0 and math.max(0, next_start(rule, 1, at_us) - now) or 0
  answer[l + 1] = {used, wait, math.max(0, math.ceil(one.held_until / 1000) - now), one.wrong and 1 or 0}
end
return answer
