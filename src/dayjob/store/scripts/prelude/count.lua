-- Count how many jobs of each name can be fetched, into `left`. Drops the rules of names that have none in Redis.
local function count_jobs(exchange)
  local limit, rule, left, unknown, partitions = exchange.limit, exchange.rule, exchange.left, exchange.unknown, exchange.partitions
  local key_of, note_wrong = exchange.key_of, exchange.note_wrong
  for i = 1, #exchange.name do
    local most = exchange.limits_known and fetchable(exchange.first_key + (i - 1) * 4, limit[i])
    if not most then note_wrong(i) end
    left[i] = most or 0
    if limit[i] and not tonumber(limit[i]) then
      -- Another pool or an operator changed the limits of this name: nothing is fetched before this pool knows them too.
      if not rule[i] or rule[i].unknown or rule[i].text ~= string.match(limit[i], '^%S+ (.*)$') then
        unknown[#unknown + 1] = i
        left[i] = 0
      elseif rule[i].wrong then
        note_wrong(i)
        left[i] = 0
      end
    else
      rule[i] = nil
    end
    local own = partitions and rule[i] and partitions[i]
    if own then
      -- A name with keys is fetched by key. What is in its queue must be sorted first.
      if most and redis.call('LLEN', key_of(i, 1)) > 0 then exchange.unsorted[#exchange.unsorted + 1] = i end
      local known_rule = unknown[#unknown] ~= i and rule[i].by and not exchange.is_wrong[i]
      if not own.good then note_wrong(i) end
      own.room = known_rule and own.good and not own.lacks_held() and own.room_under(key_of(i, 2), key_of(i, 3), limit[i]) or 0
      left[i] = own.room > 0 and math.min(own.count(rule[i], exchange.spare_under), own.room) or 0
    end
  end
end
