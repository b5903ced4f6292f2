-- Whether the rate limits of a name let another of its jobs start.
local function may_start(exchange, i)
  return not (exchange.rule[i] and exchange.spare_of(i) == 0)
end
-- Deal slots by weight to the names that have jobs left and are at least as fast as `least`, into `take`.
local function deal(exchange, take, slots, least)
  local left, rule, weight, want, charges = exchange.left, exchange.rule, exchange.weight, exchange.want, exchange.charges
  local players, evenly = {}, true
  for i = 1, #left do
    if left[i] > 0 and want[i] >= least and may_start(exchange, i) then players[#players + 1] = i end
  end
  while slots > 0 and #players > 0 do
    local sum, running, before, dealt, rest = 0, 0, 0, 0, {}
    for _, i in ipairs(players) do sum = sum + weight[i] end
    local most = evenly and charges and charges.shares(players, rule, weight)
    for n, i in ipairs(players) do
      running = running + (most and math.min(slots * weight[i] / sum, most[i]) or slots * weight[i] / sum)
      local upto = n == #players and not most and slots or math.floor(running + exchange.u)
      local k = math.min(upto - before, left[i])
      if rule[i] then
        -- Names that share a limit are dealt from what it leaves together.
        k = math.min(k, exchange.spare_of(i))
        charges.reserve(rule[i], k)
      end
      before = upto
      take[i] = (take[i] or 0) + k
      left[i] = left[i] - k
      dealt = dealt + k
      if left[i] > 0 and may_start(exchange, i) then rest[#rest + 1] = i end
    end
    -- If rounding dealt nothing, the first names take what there is.
    evenly = dealt > 0
    slots, players = slots - dealt, rest
    -- Use other digits of u for the next round, so that one round's rounding does not bias the next.
    exchange.u = (exchange.u * 65536 + 0.6180339887498949) % 1
  end
end
-- Fetch jobs of a name until the answer is full. Returns how many of `count` it did not fetch.
local function fetch(exchange, i, count)
  local held, pool, limit, rule, key_of = exchange.held, exchange.pool, exchange.limit[i], exchange.rule[i], exchange.key_of
  local group, grown, label, queue, format = {i}, 1, exchange.name[i], key_of(i, 1), string.format
  local bytes, token_number, chunk = exchange.bytes, exchange.token_number, 4
  -- Whether something counts the attempts by their members; plain names have none.
  local counted = limit or rule
  while count > 0 and bytes > 0 do
    chunk = math.min(chunk, count)
    local payloads = redis.call('LRANGE', queue, -chunk, -1)
    local pairs_, members, taken = {}, {}, 0
    for p = #payloads, 1, -1 do
      if bytes <= 0 then break end
      local payload, token = payloads[p], format('%d:%s', token_number, label)
      token_number, taken, grown = token_number + 1, taken + 1, grown + 1
      bytes = bytes - #payload
      pairs_[taken * 2 - 1], pairs_[taken * 2] = token, payload
      if counted then members[taken] = pool .. '/' .. token end
      group[grown] = payload
    end
    redis.call('HSET', held, unpack(pairs_))
    if limit and not exchange.uncounted[i] then redis.call('SADD', key_of(i, 3), unpack(members)) end
    if rule then exchange.charges.record_starts(rule, members) end
    redis.call('LTRIM', queue, 0, -taken - 1)
    count = count - taken
    chunk = math.min(chunk * 4, 32)
  end
  exchange.bytes, exchange.token_number = bytes, token_number
  -- The group is empty if the names before it used up the bytes.
  if grown > 1 then exchange.jobs[#exchange.jobs + 1] = group end
  return count
end
-- Takes jobs of the keys of a name: `read` reads some, `store` writes down all that were read and removes them from their
-- partitions, so that many keys with few jobs need one write.
local function new_taker(exchange, i)
  local held, rule, charges, key_of = exchange.held, exchange.rule[i], exchange.charges, exchange.key_of
  local counted, prefix, name = exchange.limit[i] and not exchange.uncounted[i], exchange.pool .. '/', exchange.name[i]
  local taker, of_keys, some, pairs_, filled = {}, {}, {}, {}, 0
  local group, grown, windows, format = {-i, of_keys}, 2, #rule > 0, string.format
  function taker.store()
    if filled == 0 then return end
    redis.call('HSET', held, unpack(pairs_, 1, filled))
    for _, each in ipairs(some) do
      local members, of_key, list = each.members, each.one.held, each.one.list
      if members then
        if counted then redis.call('SADD', key_of(i, 3), unpack(members)) end
        if each.one.places > 0 then redis.call('SADD', of_key, unpack(members)) end
        charges.record_starts(rule, members)
        if each.one.rule then charges.record_starts(each.one.rule, members) end
      end
      redis.call('LTRIM', list, 0, -each.taken - 1)
    end
    some, filled = {}, 0
  end
  -- Read up to `count` jobs of a key, 32 at most, until the answer is full. Returns how many. What it read before of the key is stored.
  function taker.read(one, count)
    local list, label, bytes, number = one.list, name .. '|' .. one.key, exchange.bytes, exchange.token_number
    count = math.min(count, 32)
    if filled + count * 2 > 500 then taker.store() end
    local payloads, at = redis.call('LRANGE', list, -count, -1), filled
    local members = (counted or windows or one.places > 0 or one.rule) and {}
    local pairs_, group, out = pairs_, group, grown
    for p = #payloads, 1, -1 do
      if bytes <= 0 then break end
      local payload, token = payloads[p], format('%d:%s', number, label)
      number, at, out = number + 1, at + 2, out + 1
      bytes = bytes - #payload
      pairs_[at - 1], pairs_[at], group[out] = token, payload, payload
      if members then members[out - grown] = prefix .. token end
    end
    local taken = out - grown
    filled, grown = at, out
    exchange.bytes, exchange.token_number = bytes, number
    if taken > 0 then
      some[#some + 1] = {one = one, taken = taken, members = members}
      of_keys[#of_keys + 1], of_keys[#of_keys + 2] = one.key, taken
    end
    return taken
  end
  function taker.finish()
    taker.store()
    if #of_keys > 0 then exchange.jobs[#exchange.jobs + 1] = group end
  end
  return taker
end
-- Fetch `count` jobs of a name by its keys. Returns how many it did not fetch.
local function fetch_by_key(exchange, i, count, prefetches, own)
  local untaken, charges, taker = count, exchange.charges, new_taker(exchange, i)
  for _, one in ipairs(own.deal(count, prefetches, exchange.spare_under, charges.reserve)) do
    local dealt, taken = one.take, 0
    while taken < dealt and exchange.bytes > 0 do
      if taken > 0 then taker.store() end
      taken = taken + taker.read(one, dealt - taken)
    end
    if taken < dealt then own.undo(one, dealt - taken, charges.reserve) end
    untaken = untaken - taken
  end
  taker.finish()
  own.room = own.room - count + untaken
  return untaken
end
-- Fetch `room` jobs of any name, and `extra` more of the fast names.
local function fetch_shares(exchange, room, extra)
  local left, rule, want, partitions, take = exchange.left, exchange.rule, exchange.want, exchange.partitions, {}
  if room > 0 then deal(exchange, take, room, '1') end
  for i = 1, #left do
    -- While a slow queue has jobs left, free slots are shared by weight, so nothing is prefetched from the fast ones.
    if left[i] > 0 and want[i] == '1' and may_start(exchange, i) then extra = 0 end
  end
  if extra > 0 then deal(exchange, take, extra, '2') end
  for i = 1, #left do
    if take[i] and take[i] > 0 then
      local own, untaken = partitions and rule[i] and partitions[i], nil
      if own then
        untaken = fetch_by_key(exchange, i, take[i], extra > 0, own)
      else
        untaken = fetch(exchange, i, take[i])
      end
      left[i] = left[i] + untaken
      if rule[i] then exchange.charges.reserve(rule[i], -untaken) end
    end
  end
end
-- Answer a resend with what the first send fetched.
local function fetch_again(exchange)
  local held, jobs = exchange.held, exchange.jobs
  local all = redis.call('HGETALL', held)
  for p = 1, #all, 2 do
    if tonumber(string.match(all[p], '^(%d+):')) >= exchange.token_number then
      jobs[#jobs + 1] = all[p]
      jobs[#jobs + 1] = all[p + 1]
    end
  end
end
