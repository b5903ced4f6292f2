-- Read the rate limits, the rules of job names and their keys from `args` behind `position`; `counts` has how many there are of
-- each. Returns the position behind them.
local function read_rules(exchange, limits, time, counts, position, args)
  local limiters, limited, keyed_names = counts[1], counts[2], counts[3]
  local names, rule, left = #exchange.name, exchange.rule, exchange.left
  local at_us, asked, base = time[1] * 1000000 + time[2], {}, exchange.first_key + names * 4
  for n = 1, limiters * 2 do asked[n] = args[position + n] end
  local limiter = read_limiters(limits, asked, base, at_us)
  position, base = position + limiters * 2, base + limiters * 2
  for _ = 1, limited do
    rule[tonumber(args[position + 1])] = read_rule(args[position + 2], limiter)
    position = position + 2
  end
  exchange.charges = new_charges(limiter, at_us, spare)
  function exchange.spare_under(one) return spare(one, at_us) end
  function exchange.next_start_under(one, waiting) return next_start(one, waiting, at_us) end
  function exchange.spare_of(i) return spare(rule[i], at_us) end
  function exchange.next_start_of(i) return next_start(rule[i], left[i], at_us) end
  if keyed_names > 0 then
    --@use turns partitions
    exchange.partitions = {}
    for i = 1, names do
      -- A name with keys and no limit of its own: its attempts are not counted.
      local limit = exchange.limit[i]
      exchange.uncounted[i] = limit and string.sub(limit, 1, 2) == '- '
    end
    for _ = 1, keyed_names do
      local i, estimate, counts = tonumber(args[position + 1]), args[position + 2], args[position + 3] == '1'
      local following, heads, count = tonumber(args[position + 4]), tonumber(args[position + 5]), tonumber(args[position + 6])
      local keys = {unpack(args, position + 7, position + 6 + count)}
      position = position + 6 + count
      local own = new_partitions(base, keys, heads, following, at_us, counts)
      -- The pool may know an older rule: what counts is decided by the one in Redis.
      own.places_in_redis = string.match(exchange.limit[i] or '', ' |%S+ (%d+)')
      exchange.partitions[i] = own
      base = base + 4 + count * (counts and 2 or 1)
      if rule[i] then
        rule[i].price = tonumber(estimate)
        read_key_rules(rule[i], keys, heads, limiter, at_us)
      end
    end
  end
  return position
end
