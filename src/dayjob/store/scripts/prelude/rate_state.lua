-- Read the state of a rate: <epoch> <last> <charged> <rest>, and <interval> for one key; nil if there is none. `last` counts from
-- the epoch, and `rest` is what `full_at` is beyond epoch and charges: keys wait in large numbers, and both are 0 for most of them.
local function read_rate_state(text)
  local pattern = '^(%d+) (-?%d+) (%d+) (-?%d+) ?([%d.]*)$'
  local epoch, last, charged, rest, interval = string.match(type(text) == 'string' and text or '', pattern)
  if not epoch then return end
  return epoch, last + epoch, tonumber(charged), epoch + charged + rest, tonumber(interval)
end
