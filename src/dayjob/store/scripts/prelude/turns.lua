-- Put keys that have jobs into the turns of their name, unless they wait in blocked. They start at the first virtual time there,
-- or at their own if that is later, so that a key gains nothing by idling.
local function take_turns(turns, blocked, debts, keys)
  local waits = redis.call('ZMSCORE', blocked, unpack(keys))
  local own = redis.call('ZMSCORE', debts, unpack(keys))
  local first, added = redis.call('ZRANGE', turns, 0, 0, 'WITHSCORES')[2] or '0', {}
  for k = 1, #keys do
    if not waits[k] then
      added[#added + 1] = own[k] and tonumber(own[k]) > tonumber(first) and own[k] or first
      added[#added + 1] = keys[k]
    end
    if #added > 0 and (k == #keys or #added == 500) then
      redis.call('ZADD', turns, 'NX', unpack(added))
      added = {}
    end
  end
end
