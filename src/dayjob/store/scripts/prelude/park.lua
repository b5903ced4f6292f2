-- Store what an exchange charged to rate limits. Park the names whose jobs wait for one until the next may start, and wake the
-- leader if that is before all others.
local function park_names(exchange, parked, due)
  local left, partitions, not_parked = exchange.left, exchange.partitions, {}
  if not exchange.again then exchange.charges.store(exchange.marks) end
  for i in pairs(exchange.rule) do
    local own, at, next_keys, waits = partitions and partitions[i], nil, exchange.next_keys, false
    if own then
      if own.counted then own.store(exchange.spare_under, exchange.next_start_under) end
      local following = own.next_keys()
      next_keys[#next_keys + 1] = i
      next_keys[#next_keys + 1] = following
      next_keys[#next_keys + 1] = own.counts() and 1 or 0
      left[i] = own.room > 0 and #following or 0
      waits = own.good and #following == 0
    end
    if left[i] > 0 and exchange.spare_of(i) == 0 then
      at = exchange.next_start_of(i)
      left[i] = 0
    elseif waits then
      -- Also while the queue is paused or full: it may go on before the first key may start.
      at = own.next_start()
      if own.room == 0 and at and at <= exchange.now then at = nil end
    end
    if at then
      local first = redis.pcall('ZRANGE', parked, 0, 0, 'WITHSCORES')
      redis.pcall('ZADD', parked, string.format('%.3f', at / 1000), exchange.name[i])
      if not first.err and not (first[2] and tonumber(first[2]) * 1000 <= at) then redis.pcall('ZADD', due, 0, '1') end
    else
      not_parked[#not_parked + 1] = exchange.name[i]
    end
  end
  for first = 1, #not_parked, 500 do
    redis.pcall('ZREM', parked, unpack(not_parked, first, math.min(first + 499, #not_parked)))
  end
end
