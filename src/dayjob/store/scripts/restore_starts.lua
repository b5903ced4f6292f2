#!lua flags=allow-oom
--[[ restore_starts: count the starts of attempts that a pool holds, where the state of a rate limit was deleted.

Called by: rates.restore_starts
KEYS[1]  limits
KEYS[2...]  per limit: its rate or window
ARGV[1]  pool id
ARGV[2...]  per limit: its name, or <name>|<key> for one key; rate | window, the epoch that this pool restored before or "", number of attempts;
            per attempt of it: token, microsecond when it was fetched, units
Returns  per limit: the epoch to which this pool has added its attempts, or ""
Atomic because: a state that is missing must be built from what was held, before another charge creates it.
]]
--@use rate_state rate_text
local time = redis.call('TIME')
local at_us = time[1] * 1000000 + time[2]
local pool, position, answer = ARGV[1], 1, {}

-- What is there already stays as it is.
local function restore_window(starts, per, attempts)
  local added = {}
  for _, each in ipairs(attempts) do
    if each.at > at_us - per then
      added[#added + 1] = string.format('%.0f', each.at)
      added[#added + 1] = pool .. '/' .. each.token
    end
  end
  if #added > 0 and type(redis.pcall('ZADD', starts, 'NX', unpack(added))) == 'number' then
    redis.call('PEXPIRE', starts, string.format('%.0f', per / 1000 + 60000))
  end
  return ''
end

-- An epoch that begins with 0 is that of a restored state: each pool adds its attempts to it once.
local function restore_rate(state, interval, attempts, restored, of_key)
  local text = redis.pcall('GET', state)
  if type(text) == 'table' then return '' end
  local epoch, last, charged, full_at = string.format('0%.0f', at_us), 0, 0, 0
  if text then
    epoch, last, charged, full_at = read_rate_state(text)
    if not epoch or string.sub(epoch, 1, 1) ~= '0' or epoch == restored then return restored end
  end
  table.sort(attempts, function(a, b) return a.at < b.at end)
  for _, each in ipairs(attempts) do
    full_at = math.max(full_at, each.at) + each.units * interval
    charged = charged + each.units * interval
    last = math.max(last, each.at)
  end
  -- A bucket that would be full again by now was not deleted: its state expired.
  if full_at <= at_us then return '' end
  local built = rate_text(epoch, last, charged, full_at, of_key and interval)
  redis.call('SET', state, built, 'PX', string.format('%.0f', (full_at - at_us) / 1000 + 60000))
  return epoch
end

for l = 1, #KEYS - 1 do
  local name, kind, restored, count = ARGV[position + 1], ARGV[position + 2], ARGV[position + 3], tonumber(ARGV[position + 4])
  position = position + 4
  local field, of_key = 'limit:' .. string.match(name, '^[^|]*'), string.find(name, '|', 1, true)
  local stored = redis.call('HMGET', KEYS[1], field, field .. '|reset')
  -- What an operator reset stays reset.
  local attempts, after = {}, tonumber(stored[2] or '0')
  for _ = 1, count do
    local at = tonumber(ARGV[position + 2])
    if at > after then attempts[#attempts + 1] = {token = ARGV[position + 1], at = at, units = tonumber(ARGV[position + 3])} end
    position = position + 3
  end
  local defined, n, per = string.match(stored[1] or '', '^(%a+) (%d+) (%d+)')
  answer[l] = ''
  if defined == kind and kind == 'window' then answer[l] = restore_window(KEYS[l + 1], tonumber(per), attempts) end
  if defined == kind and kind == 'rate' then answer[l] = restore_rate(KEYS[l + 1], per / n, attempts, restored, of_key) end
end
return answer
