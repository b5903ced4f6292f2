--@use rate_text
-- The limits of a request, by index and by name. `asked` has 2 texts for each: its name and its kind; KEYS has 2 for each
-- behind the index `base`. A limit that counts by key is passed once as keyed, whose first key has what operators set for
-- single keys, and as <limit>|<key> for each key.
local function read_limiters(limits, asked, base, at_us)
  local limiter, fields, keyed, count = {}, {}, {}, #asked / 2
  for l = 1, count do
    fields[l] = definition_field(asked[l * 2 - 1])
    if asked[l * 2] == 'keyed' then keyed[asked[l * 2 - 1]] = {overrides = KEYS[base + l * 2 - 1], keys = {}, at = {}} end
  end
  -- Behind the definitions: when an operator reset a limit for all its keys.
  local resets = {}
  for whole in pairs(keyed) do
    fields[#fields + 1] = definition_field(whole) .. '|reset'
    resets[whole] = #fields
  end
  local definitions = count > 0 and limits_of(limits, fields) or {}
  for l = 1, count do
    local whole, key = string.match(asked[l * 2 - 1], '^([^|]*)|(.*)$')
    local own = whole and keyed[whole]
    if own then own.keys[#own.keys + 1], own.at[#own.at + 1] = key, l end
  end
  for _, own in pairs(keyed) do
    local overrides = own.overrides
    local set = #own.keys > 0 and redis.pcall('HMGET', overrides, unpack(own.keys)) or {}
    for k, l in ipairs(own.at) do definitions[l] = set[k] or definitions[l] end
  end
  for l = 1, count do
    local at = base + l * 2
    local whole = string.match(asked[l * 2 - 1], '^([^|]*)|')
    local reset = whole and resets[whole] and definitions[resets[whole]]
    limiter[l] = read_limiter(definitions[l], asked[l * 2], KEYS[at - 1], KEYS[at], at_us, reset)
    limiter[l].of_key = whole and true
    limiter[asked[l * 2 - 1]] = limiter[l]
  end
  return limiter
end
-- The rule of a job name: its limits by number, what a job costs, and its key.
local function read_rule(text, limiter)
  local own, by, places = string.match(text, '^(.-) |(%S+) (%d+)')
  local one = {text = text, cost = tonumber(string.match(text, '^%d+')), by = by, places = tonumber(places)}
  for limit_name in string.gmatch(own or text, ' (%S+)') do
    local found = limiter[string.match(limit_name, '^[^|]*')] or {unknown = true}
    one[#one + 1] = found
    one.unknown, one.wrong = one.unknown or found.unknown, one.wrong or found.wrong
  end
  return one
end
-- The rules of single keys: the limits of the name that count by key. A key whose limit cannot be read waits a minute.
local function read_key_rules(rule, keys, count, limiter, at_us)
  local counting = {}
  for limit_name in string.gmatch(rule.text, ' ([^| ]+|)%f[ ]') do counting[#counting + 1] = limit_name end
  if #counting == 0 then return end
  rule.by_key = {}
  for k = 1, count do
    local one = {cost = rule.cost}
    for n, limit_name in ipairs(counting) do
      local found = limiter[limit_name .. keys[k]]
      -- The pool knows another kind of this limit than Redis, and must read the rules again.
      if found and found.unknown then rule.unknown = true end
      one[n] = found and not found.unknown and not found.wrong and found or {held_until = at_us + 60000000}
    end
    rule.by_key[keys[k]] = one
  end
end
-- What an exchange does with rate limits. `limiter` has them by index, `at_us` is the time, and `spare_of` how many more
-- jobs may start under a rule.
local function new_charges(limiter, at_us, spare_of)
  local charges = {}
  -- The most that each name may be dealt, so that names which share a limit get what it leaves by their weights. Nil if
  -- no name has a rate limit.
  function charges.shares(names, rules, weights)
    local sum, most, any = {}, {}, false
    for _, i in ipairs(names) do
      for _, each in ipairs(rules[i] or {}) do sum[each] = (sum[each] or 0) + weights[i] end
    end
    for _, i in ipairs(names) do
      most[i] = math.huge
      local free = rules[i] and spare_of(rules[i], at_us)
      for _, each in ipairs(rules[i] or {}) do
        any = true
        most[i] = math.min(most[i], free * weights[i] / sum[each])
      end
    end
    return any and most or nil
  end
  local function charge(one, amount)
    one.full_at = math.max(one.full_at, at_us) + amount
    one.due = (one.due or 0) + amount
  end
  -- Charge the limits of a rule for `count` jobs; a negative count takes back what this script charged.
  function charges.reserve(rule, count)
    for _, each in ipairs(rule) do
      if each.kind == 'rate' then charge(each, count * rule.cost * each.interval) end
      if each.kind == 'window' then each.size = each.size + count end
    end
  end
  function charges.record_starts(rule, members)
    for _, each in ipairs(rule) do
      if each.kind == 'window' then
        local starts, scored = each.state, {}
        for m = 1, #members do scored[m * 2 - 1], scored[m * 2] = string.format('%.0f', at_us), members[m] end
        redis.call('ZADD', starts, unpack(scored))
        each.stored = true
      end
    end
  end
  -- Take back a charge, only as far as the bucket would be fuller now without it: what later jobs used stays used, and a
  -- bucket is never fuller than full.
  local function refund(one, amount, epoch, charged)
    if epoch ~= one.epoch then return end
    local later = one.due and at_us or one.last
    local least = later + one.charged + (one.due or 0) - tonumber(charged)
    one.full_at = math.min(one.full_at, math.max(one.full_at - amount, least))
    one.changed = true
  end
  -- Correct what an attempt was charged.
  function charges.spend(member, what, units, marks)
    for l, epoch, charged in string.gmatch(marks, '(%d+):(%d*):?(%d*)') do
      local one = limiter[tonumber(l)] or {}
      if one.kind == 'rate' and not one.wrong then
        if units > 0 then
          charge(one, units * one.interval)
        else
          refund(one, -units * one.interval, epoch, charged)
        end
      elseif one.kind == 'window' and not one.wrong then
        local starts = one.state
        local at = what == 'undone' and redis.call('ZSCORE', starts, member)
        if at then
          redis.call('ZREM', starts, member)
          if tonumber(at) > at_us - one.per then one.size = one.size - 1 end
        elseif what == 'again' then
          redis.call('ZADD', starts, string.format('%.0f', at_us), member)
          one.size, one.stored = one.size + 1, true
        end
      end
    end
  end
  -- Let nothing start under these limits for some time.
  function charges.hold(indexes, milliseconds)
    for l in string.gmatch(indexes, '%d+') do
      local one = limiter[tonumber(l)]
      if one and not one.wrong then
        one.held_until = math.max(one.held_until, at_us + milliseconds * 1000)
        local hold, left = one.hold, math.max(1, math.ceil((one.held_until - at_us) / 1000))
        redis.call('SET', hold, string.format('%.0f', math.ceil(one.held_until / 1000)), 'PX', string.format('%.0f', left))
      end
    end
  end
  -- Store the charges of this script, and add the marks by which they can be taken back: limit index, mark, ...
  function charges.store(marks)
    for l, one in ipairs(limiter) do
      local state = one.state
      if one.due or one.changed then
        if (one.due or 0) > 0 then
          one.charged, one.last = math.ceil(one.charged + one.due), at_us
          marks[#marks + 1] = l
          marks[#marks + 1] = string.format('%s:%.0f', one.epoch, one.charged)
        end
        local full_at = math.ceil(one.full_at)
        -- A rate of one key has its interval: a change of the limit finds only the state for all keys.
        local text = rate_text(one.epoch, one.last, one.charged, full_at, one.of_key and one.interval)
        redis.call('SET', state, text, 'PX', string.format('%.0f', math.max(full_at - at_us, 0) / 1000 + 60000))
      elseif one.stored then
        redis.call('ZREMRANGEBYSCORE', state, '-inf', string.format('%.0f', at_us - one.per))
        redis.call('PEXPIRE', state, string.format('%.0f', one.per / 1000 + 60000))
      end
    end
  end
  return charges
end
