#!lua flags=allow-oom
--[[ heal_keys: put keys that have jobs into turns if they are in no order, or are blocked although a place is free.

Called by: partitions.heal_keys
KEYS[1]  turns
KEYS[2]  blocked
KEYS[3]  debts
KEYS[4]  key_settings
KEYS[5]  bell
KEYS[6]  parked
KEYS[7]  due
KEYS[8...]  2 per key: partition, held set
ARGV[1]  job name
ARGV[2]  how many jobs of a key may run at once, or 0
ARGV[3...]  the keys
Returns  how many were put into turns
Atomic because: a key with jobs must be in turns or in blocked, and exchanges move it between them.
]]
--@use check bell turns
local turns, blocked, debts, settings, bell, parked, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local name, places = ARGV[1], tonumber(ARGV[2])

for i = 1, 3 do
  if not good(redis.pcall('ZCARD', KEYS[i])) then redis.call('DEL', KEYS[i]) end
end
local healed = 0
for i = 3, #ARGV do
  local key, list, held = ARGV[i], KEYS[i * 2 + 2], KEYS[i * 2 + 3]
  local waiting, until_ = redis.pcall('LLEN', list), redis.call('ZSCORE', blocked, key)
  if type(waiting) == 'number' and waiting > 0 then
    if until_ == 'inf' then
      local set = redis.pcall('HGET', settings, key)
      local own, paused = string.match(type(set) == 'string' and set or '', '^%S+ (%S+) (%S+)$')
      local most, running = tonumber(own) or places, redis.pcall('SCARD', held)
      if paused ~= '1' and (most == 0 or (type(running) == 'number' and running < most)) then
        redis.call('ZREM', blocked, key)
        until_ = false
      end
    end
    if not until_ and not redis.call('ZSCORE', turns, key) then
      take_turns(turns, blocked, debts, {key})
      healed = healed + 1
    end
  end
end
if healed > 0 then ring(bell) end
-- The leader wakes a pool for the first blocked key, if it still knows of it.
local first = redis.call('ZRANGE', blocked, 0, 0, 'WITHSCORES')
if first[2] and first[2] ~= 'inf' and not redis.pcall('ZSCORE', parked, name) then
  redis.pcall('ZADD', parked, 'NX', string.format('%.3f', first[2] / 1000), name)
  redis.pcall('ZADD', due, 0, '1')
end
return healed
