-- The keys of one job name in an exchange. KEYS has its turns, blocked, debts and key_settings after the index `base`, then
-- for each key its partition and its held set. The first `count` keys may be fetched from.
local function new_partitions(base, keys, count, at_us)
  local turns, blocked, debts, settings = KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], KEYS[base + 4]
  local own, heads, places, price = {of = {}}, {}, 0, 1
  for k = 1, #keys do
    local one = {key = keys[k], list = KEYS[base + 3 + k * 2], held = KEYS[base + 4 + k * 2], take = 0}
    own.of[one.key] = one
    if k <= count then heads[k] = one end
  end
  own.good = type(redis.pcall('ZCARD', turns)) == 'number' and type(redis.pcall('ZCARD', blocked)) == 'number'
    and type(redis.pcall('ZCARD', debts)) == 'number'
  -- The key of a token of this name, if the request has that key.
  function own.in_token(token)
    return own.of[string.match(token, '|(.*)$') or false]
  end
  function own.can_take_back(token)
    local one = own.in_token(token)
    local list = one and one.list
    return own.good and one and type(redis.pcall('LLEN', list)) == 'number' and one
  end
  function own.put_back(one, payload)
    local list = one.list
    redis.call('RPUSH', list, payload)
    take_turn(turns, blocked, debts, one.key)
  end
  -- An attempt ended: its key may have a place again. Where no key has a limit, no attempts of keys are counted.
  local frees
  function own.free(token, member)
    if frees == nil then frees = own.places_in_redis ~= '0' or redis.call('EXISTS', settings) == 1 end
    if not frees then return end
    local one = own.in_token(token)
    if not one or not own.good then return end
    local held = one.held
    if redis.pcall('SREM', held, member) == 1 and redis.call('ZSCORE', blocked, one.key) == 'inf' then
      redis.call('ZREM', blocked, one.key)
      take_turn(turns, blocked, debts, one.key)
    end
  end
  -- Its key may start sooner, because a charge was taken back.
  function own.try_again(token)
    local one = own.in_token(token)
    if one and own.good and redis.call('ZREM', blocked, one.key) == 1 then take_turn(turns, blocked, debts, one.key) end
  end
  -- Correct what a key was given, by the seconds that an attempt took more or less than estimated.
  function own.worked(token, seconds)
    local one = own.in_token(token)
    if not one or not own.good then return end
    local set = redis.pcall('HGET', settings, one.key)
    local change = seconds / (tonumber(string.match(type(set) == 'string' and set or '', '^(%S+)')) or 1)
    local at = redis.call('ZSCORE', turns, one.key)
    local first = redis.call('ZRANGE', turns, 0, 0, 'WITHSCORES')
    if at then
      redis.call('ZADD', turns, string.format('%.17g', math.max(at + change, 0)), one.key)
    elseif first[2] then
      local debt = redis.call('ZSCORE', debts, one.key) or first[2]
      redis.call('ZADD', debts, string.format('%.17g', debt + change), one.key)
    end
  end
  -- How many more jobs of the name may run at once; 0 while its queue is paused.
  function own.room_under(paused, held, limit)
    if redis.call('EXISTS', paused) == 1 then return 0 end
    if string.sub(limit, 1, 2) == '- ' then return 1000000 end
    local running = redis.pcall('SCARD', held)
    if type(running) ~= 'number' then return 0 end
    return math.max((tonumber(string.match(limit, '^%S*')) or 0) - running, 0)
  end
  -- How many jobs can be fetched of the keys that were passed, under the rule of the name.
  function own.count(rule, spare_under)
    places, price, own.counted = rule.places, rule.price, true
    local now = string.format('%.0f', math.floor(at_us / 1000))
    for _, key in ipairs(redis.call('ZRANGEBYSCORE', blocked, '-inf', now, 'LIMIT', 0, 64)) do
      redis.call('ZREM', blocked, key)
      take_turn(turns, blocked, debts, key)
    end
    if count == 0 then return 0 end
    local scores = redis.call('ZMSCORE', turns, unpack(keys, 1, count))
    local set, total = redis.pcall('HMGET', settings, unpack(keys, 1, count)), 0
    for k, one in ipairs(heads) do
      one.at = tonumber(scores[k])
      if one.at then
        local list, held = one.list, one.held
        local size = redis.pcall('LLEN', list)
        one.size, one.weight = type(size) == 'number' and size or 0, 1
        one.most = one.size
        local weight, own_places, paused = string.match(type(set[k]) == 'string' and set[k] or '', '^(%S+) (%S+) (%S+)$')
        if weight then one.weight = tonumber(weight) or 1 end
        one.places = tonumber(own_places) or places
        if paused == '1' then
          one.paused, one.most = true, 0
        elseif one.places > 0 then
          local running = redis.pcall('SCARD', held)
          one.free_places = math.max(one.places - (type(running) == 'number' and running or one.places), 0)
          one.most = math.min(one.most, one.free_places)
        end
        one.rule = rule.by_key and rule.by_key[one.key]
        if one.rule then one.most = math.min(one.most, spare_under(one.rule)) end
        total = total + one.most
      end
    end
    return total
  end
  -- Deal jobs to the keys with the lowest virtual time. Each that takes k jobs moves on by k / weight.
  function own.deal(slots, spare_under, reserve)
    local players = {}
    for _, one in ipairs(heads) do
      if one.at and one.most > 0 then players[#players + 1] = one end
    end
    local quantum = math.max(1, math.floor(slots / (2 * #players)))
    while slots > 0 and #players > 0 do
      local first = 1
      for p = 2, #players do
        if players[p].at < players[first].at then first = p end
      end
      local one = players[first]
      local k = math.min(quantum, one.most - one.take, slots, one.rule and spare_under(one.rule) or slots)
      if k > 0 then
        one.take, one.at, slots = one.take + k, one.at + k * price / one.weight, slots - k
        if one.rule then reserve(one.rule, k) end
      end
      if k <= 0 or one.take >= one.most then table.remove(players, first) end
    end
    return heads
  end
  -- Not as many were taken as dealt, because the answer is full.
  function own.undo(one, untaken, reserve)
    one.take, one.at = one.take - untaken, one.at - untaken * price / one.weight
    if one.rule then reserve(one.rule, -untaken) end
  end
  -- Put each key where it belongs now: in turns, in blocked, or nowhere if it has no jobs left.
  function own.store(spare_under, next_start_under)
    for _, one in ipairs(heads) do
      if one.at then
        local left, wait = one.size - one.take, nil
        if left > 0 then
          if one.paused or (one.free_places and one.free_places - one.take <= 0) then
            wait = 'inf'
          elseif one.rule and spare_under(one.rule) == 0 then
            wait = string.format('%.0f', next_start_under(one.rule, left))
          end
        end
        local at = string.format('%.17g', one.at)
        if left > 0 and not wait then
          if one.take > 0 then redis.call('ZADD', turns, at, one.key) end
        else
          if wait then redis.call('ZADD', blocked, wait, one.key) end
          redis.call('ZADD', debts, at, one.key)
          redis.call('ZREM', turns, one.key)
        end
      end
    end
    -- What a key is ahead of the others is remembered only as long as others wait.
    local first = redis.call('ZRANGE', turns, 0, 0, 'WITHSCORES')
    if first[2] then
      redis.call('ZREMRANGEBYSCORE', debts, '-inf', first[2])
    else
      redis.call('DEL', debts)
    end
  end
  function own.next_keys()
    return own.good and redis.call('ZRANGE', turns, 0, 63) or {}
  end
  -- The millisecond when the first blocked key may start; nil if none waits for a time.
  function own.next_start()
    local first = redis.call('ZRANGE', blocked, 0, 0, 'WITHSCORES')
    return first[2] and first[2] ~= 'inf' and tonumber(first[2]) or nil
  end
  return own
end
