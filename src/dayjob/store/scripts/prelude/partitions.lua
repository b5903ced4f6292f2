-- The keys of one job name in an exchange. KEYS has its turns, blocked, debts and key_settings after the index `base`, then the
-- partition of each key, then, if the request assumes that attempts of keys are counted (`passed`), the held set of each key. The
-- first `count` keys may be fetched from. The answer has `following` keys.
local function new_partitions(base, keys, count, following, at_us, passed)
  local turns, blocked, debts, settings = KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], KEYS[base + 4]
  local own, ones, by_key, places, price, all = {}, {}, nil, 0, 1, #keys
  for k = 1, all do
    -- All fields, so that the table is made in its full size.
    ones[k] = {
      key = keys[k], place = k, list = KEYS[base + 4 + k], held = passed and KEYS[base + 4 + all + k], take = 0, at = false, size = 0,
      weight = 1, places = 0, most = 0, paused = false, free_places = false, rule = false,
    }
  end
  local sizes = {redis.pcall('ZCARD', turns), redis.pcall('ZCARD', blocked), redis.pcall('ZCARD', debts)}
  own.good = type(sizes[1]) == 'number' and type(sizes[2]) == 'number' and type(sizes[3]) == 'number'
  -- Whether keys may be found there. What settles attempts adds none to blocked.
  local has_blocked, has_debts = sizes[2] ~= 0, sizes[3] ~= 0
  -- Whether attempts of keys are counted: each key has a limit, or operators have set something for one.
  local counts
  function own.counts()
    -- If the name has no rule in Redis any more, what was counted before is freed as far as the pool passed it.
    local in_redis = own.places_in_redis or passed and '1' or '0'
    if counts == nil then counts = in_redis ~= '0' or redis.call('EXISTS', settings) == 1 end
    return counts
  end
  -- Whether attempts are counted, and the pool did not know it. Then nothing is fetched, and no plain completion is settled.
  function own.lacks_held() return not passed and own.counts() end
  -- The key of a token of this name, if the request has that key.
  function own.in_token(token)
    if not by_key then
      by_key = {}
      for k = 1, all do by_key[keys[k]] = ones[k] end
    end
    return by_key[string.match(token, '|(.*)$') or false]
  end
  function own.can_take_back(token)
    local one = own.in_token(token)
    local list = one and one.list
    return own.good and one and type(redis.pcall('LLEN', list)) == 'number' and one
  end
  function own.put_back(one, payload)
    local list = one.list
    redis.call('RPUSH', list, payload)
    take_turns(turns, blocked, debts, {one.key})
  end
  -- Attempts ended: their keys may have a place again. Where no key has a limit, no attempts of keys are counted.
  function own.free(tokens, members)
    if not own.counts() or not own.good then return end
    local ended, ended_of, freed = {}, {}, {}
    for n, token in ipairs(tokens) do
      local one = own.in_token(token)
      if one and not ended_of[one] then
        ended_of[one] = {}
        ended[#ended + 1] = one
      end
      if one then table.insert(ended_of[one], members[n]) end
    end
    for _, one in ipairs(ended) do
      local held = one.held
      local removed = redis.pcall('SREM', held, unpack(ended_of[one]))
      if type(removed) == 'number' and removed > 0 then freed[#freed + 1] = one.key end
    end
    if #freed == 0 then return end
    local ready = {}
    for k, score in ipairs(redis.call('ZMSCORE', blocked, unpack(freed))) do
      if score == 'inf' then ready[#ready + 1] = freed[k] end
    end
    if #ready > 0 then
      redis.call('ZREM', blocked, unpack(ready))
      take_turns(turns, blocked, debts, ready)
    end
  end
  -- Its key may start sooner, because a charge was taken back.
  function own.try_again(token)
    local one = own.in_token(token)
    if one and own.good and redis.call('ZREM', blocked, one.key) == 1 then take_turns(turns, blocked, debts, {one.key}) end
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
      has_debts = true
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
  -- What one key leaves under its places, its settings and its rates.
  local function measure(one, set, rule, spare_under)
    local list, held = one.list, one.held
    local size = redis.pcall('LLEN', list)
    if type(size) == 'number' then one.size, one.most = size, size end
    one.places = places
    if type(set) == 'string' then
      local weight, own_places, paused = string.match(set, '^(%S+) (%S+) (%S+)$')
      one.weight, one.places, one.paused = tonumber(weight or '') or 1, tonumber(own_places or '') or places, paused == '1'
    end
    if one.paused then
      one.most = 0
    elseif one.places > 0 then
      local running = redis.pcall('SCARD', held)
      one.free_places = math.max(one.places - (type(running) == 'number' and running or one.places), 0)
      one.most = math.min(one.most, one.free_places)
    end
    one.rule = rule.by_key and rule.by_key[one.key]
    if one.rule then one.most = math.min(one.most, spare_under(one.rule)) end
  end
  -- How many jobs can be fetched of the keys that were passed, under the rule of the name.
  function own.count(rule, spare_under)
    places, price, own.counted = rule.places, rule.price, true
    local now, total = string.format('%.0f', math.floor(at_us / 1000)), 0
    local due = has_blocked and redis.call('ZRANGEBYSCORE', blocked, '-inf', now, 'LIMIT', 0, 64) or {}
    if #due > 0 then
      redis.call('ZREM', blocked, unpack(due))
      take_turns(turns, blocked, debts, due)
    end
    if count == 0 then return 0 end
    local scores = redis.call('ZMSCORE', turns, unpack(keys, 1, count))
    local set = own.counts() and redis.pcall('HMGET', settings, unpack(keys, 1, count)) or {}
    for k = 1, count do
      if scores[k] then
        local one = ones[k]
        one.at = tonumber(scores[k])
        measure(one, set[k], rule, spare_under)
        total = total + one.most
      end
    end
    return total
  end
  -- Deal jobs to the keys with the lowest virtual time, which are the first of a heap. Each that takes k jobs moves on by k / weight.
  function own.deal(slots, prefetches, spare_under, reserve)
    local heap, size = {}, 0
    local function sink(p)
      local one = heap[p]
      while p * 2 <= size do
        local child = p * 2
        local low, other = heap[child], heap[child + 1]
        if child < size and (other.at < low.at or other.at == low.at and other.place < low.place) then child, low = child + 1, other end
        if one.at < low.at or one.at == low.at and one.place < low.place then break end
        heap[p], p = low, child
      end
      heap[p] = one
    end
    for k = 1, count do
      if ones[k].most > 0 then
        size = size + 1
        heap[size] = ones[k]
      end
    end
    for p = math.floor(size / 2), 1, -1 do sink(p) end
    -- Few keys get their jobs in several portions, so that weights count within one exchange. Of many keys, some get a few jobs
    -- and the others have their turn in the next exchange: a visit costs more than a job. Prefetched jobs are done within
    -- milliseconds, so that the turn of a key may be longer.
    local share = math.ceil(slots / size)
    local quantum = math.max(1, prefetches and math.min(16, 2 * share) or math.min(8, share), math.floor(slots / (2 * size)))
    while slots > 0 and size > 0 do
      local one = heap[1]
      local k = math.min(quantum, one.most - one.take, slots, one.rule and spare_under(one.rule) or slots)
      if k > 0 then
        one.take, one.at, slots = one.take + k, one.at + k * price / one.weight, slots - k
        if one.rule then reserve(one.rule, k) end
      end
      if k <= 0 or one.take >= one.most then
        heap[1], heap[size] = heap[size], nil
        size = size - 1
      end
      if size > 1 then sink(1) end
    end
    return ones
  end
  -- Not as many were taken as dealt, because the answer is full.
  function own.undo(one, untaken, reserve)
    one.take, one.at = one.take - untaken, one.at - untaken * price / one.weight
    if one.rule then reserve(one.rule, -untaken) end
  end
  -- Put each key where it belongs now: in turns, in blocked, or nowhere if it has no jobs left.
  function own.store(spare_under, next_start_under)
    local moved, waiting, gone, ahead = {}, {}, {}, {}
    for k = 1, count do
      local one = ones[k]
      if one.at then
        local left, wait = one.size - one.take, nil
        if left > 0 then
          if one.paused or (one.free_places and one.free_places - one.take <= 0) then
            wait = 'inf'
          elseif one.rule and spare_under(one.rule) == 0 then
            wait = string.format('%.0f', next_start_under(one.rule, left))
          end
        end
        if left > 0 and not wait then
          if one.take > 0 then moved[#moved + 1], moved[#moved + 2] = one.at, one.key end
        else
          if wait then waiting[#waiting + 1], waiting[#waiting + 2] = wait, one.key end
          ahead[#ahead + 1], ahead[#ahead + 2] = one.at, one.key
          gone[#gone + 1] = one.key
        end
      end
    end
    if #moved > 0 then redis.call('ZADD', turns, unpack(moved)) end
    if #waiting > 0 then redis.call('ZADD', blocked, unpack(waiting)) end
    if #gone > 0 then
      redis.call('ZADD', debts, unpack(ahead))
      redis.call('ZREM', turns, unpack(gone))
      has_debts = true
    end
    if not has_debts then return end
    -- What a key is ahead of the others is remembered only as long as others wait. Many may be behind at once, and are removed
    -- over several exchanges.
    local first = redis.call('ZRANGE', turns, 0, 0, 'WITHSCORES')
    if first[2] then
      local behind = redis.call('ZCOUNT', debts, '-inf', first[2])
      if behind > 0 then redis.call('ZREMRANGEBYRANK', debts, 0, math.min(behind, 500) - 1) end
    else
      redis.call('UNLINK', debts)
    end
  end
  function own.next_keys()
    return own.good and redis.call('ZRANGE', turns, 0, following - 1) or {}
  end
  -- The millisecond when the first blocked key may start; nil if none waits for a time.
  function own.next_start()
    local first = redis.call('ZRANGE', blocked, 0, 0, 'WITHSCORES')
    return first[2] and first[2] ~= 'inf' and tonumber(first[2]) or nil
  end
  return own
end
