#!lua flags=allow-oom
--[[ change_rate: define, set, lift, reset or hold a rate limit, and wake the job names that wait for it.

Called by: rates.declare, rates.set_limit, rates.lift, rates.restore_declared, rates.reset, rates.hold
KEYS[1]  limits
KEYS[2]  rate of the limit
KEYS[3]  window of the limit
KEYS[4]  hold of the limit
KEYS[5]  parked
KEYS[6...]  the bells of the job names that have this limit
ARGV[1]  name of the limit
ARGV[2]  declare: by code | set, lift: by an operator | restore: the definition of the code again | reset: forget what was
         used and end a hold | hold: let nothing start for some time
ARGV[3]  definition, for declare and set; milliseconds, for hold; otherwise ""
ARGV[4...]  the job names
Returns  1, or 0 when no code has defined the limit
Atomic because: a definition that an operator set must not be overwritten by code, and the units that were used before a
change must count after it.
]]
--@use time bell rate_state rate_text
local limits, rate, window, hold, parked = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local name, what, value = ARGV[1], ARGV[2], ARGV[3]
local field = 'limit:' .. name
local FIRST_NAME, FIRST_KEY = 3, 5

local now = redis_time()
local stored = redis.call('HMGET', limits, field, field .. '|by', field .. '|code')
local before, by, declared = stored[1], stored[2], stored[3]
if what ~= 'declare' and not declared then
  return 0
end

-- The microseconds of one unit, for a rate.
local function interval_of(definition)
  local n, per = string.match(definition or '', '^rate (%d+) (%d+) ')
  return n and per / n
end

local function define(definition, who)
  redis.call('HSET', limits, field, definition, field .. '|by', who)
  local old, new = interval_of(before), interval_of(definition)
  local state = old and new and old ~= new and redis.pcall('GET', rate)
  local _, last, _, full_at = read_rate_state(state)
  if full_at and full_at > now * 1000 then
    -- The same number of units is used under the new rate. A new epoch: older charges cannot be taken back any more.
    local at = now * 1000 + (full_at - now * 1000) * new / old
    local text = rate_text(string.format('%.0f', now * 1000), last, 0, at)
    redis.call('SET', rate, text, 'PX', string.format('%.0f', (at - now * 1000) / 1000 + 60000))
  end
end

if what == 'declare' then
  redis.call('HSET', limits, field .. '|code', value)
  if by ~= 'operator' or not before then define(value, 'code') end
elseif what == 'set' then
  define(value, 'operator')
elseif what == 'lift' then
  define('lifted', 'operator')
elseif what == 'restore' then
  define(declared, 'code')
elseif what == 'reset' then
  redis.call('DEL', rate, window, hold)
  -- Pools that still run attempts from before must not count them again.
  local time = redis.call('TIME')
  redis.call('HSET', limits, field .. '|reset', string.format('%.0f', time[1] * 1000000 + time[2]))
else
  local span = tonumber(value)
  redis.call('SET', hold, string.format('%.0f', now + span), 'PX', string.format('%.0f', span))
end
for i = FIRST_NAME + 1, #ARGV do
  redis.pcall('ZREM', parked, ARGV[i])
  ring(KEYS[FIRST_KEY + i - FIRST_NAME])
end
return 1
