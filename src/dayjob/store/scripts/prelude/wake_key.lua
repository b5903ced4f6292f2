-- Unblock a key whose settings changed, and let it take its turn if it has jobs. The next exchange finds out whether it still must
-- wait. Needs turns and bell.
local function wake_key(key, turns, blocked, debts, partition, bell)
  redis.call('ZREM', blocked, key)
  if redis.call('LLEN', partition) > 0 then
    take_turns(turns, blocked, debts, {key})
    ring(bell)
  end
end
