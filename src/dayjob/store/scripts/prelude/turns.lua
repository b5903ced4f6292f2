-- Put a key that has jobs into the turns of its name, unless it waits in blocked. It starts at the first virtual time there,
-- or at its own if that is later, so that a key gains nothing by idling.
local function take_turn(turns, blocked, debts, key)
  if redis.call('ZSCORE', blocked, key) then return end
  local first = redis.call('ZRANGE', turns, 0, 0, 'WITHSCORES')
  local at, debt = first[2] or '0', redis.call('ZSCORE', debts, key)
  if debt and tonumber(debt) > tonumber(at) then at = debt end
  redis.call('ZADD', turns, 'NX', at, key)
end
