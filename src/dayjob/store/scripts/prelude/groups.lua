-- Settle plain completions in groups, which stand in `args` behind `position`. Returns the position behind them.
local function settle_groups(exchange, groups, position, args)
  local held, pool, add, suspect, again = exchange.held, exchange.pool, exchange.add, exchange.suspect, exchange.again
  local limit, partitions, key_of, stuck = exchange.limit, exchange.partitions, exchange.key_of, exchange.stuck
  for _ = 1, groups do
    local i, count = tonumber(args[position + 1]), tonumber(args[position + 2])
    local first, last = position + 3, position + 2 + count
    local keyed = partitions and partitions[i]
    if keyed and keyed.lacks_held() then
      -- The pool did not pass the held sets of these attempts, and sends their outcomes again.
      for at = first, last do
        if not again or redis.call('HEXISTS', held, args[at]) == 1 then stuck[#stuck + 1] = args[at] end
      end
    elseif not again then
      local dropped = redis.call('HDEL', held, unpack(args, first, last))
      if dropped > 0 then add('done', i, dropped) end
      if dropped < count then
        exchange.late = exchange.late + count - dropped
        add('late', i, count - dropped)
      end
      -- Plain names do not pay for this.
      local counted = limit[i] and not exchange.uncounted[i]
      if counted or suspect or keyed and keyed.counts() then
        local tokens, members = {}, {}
        for at = first, last do
          tokens[#tokens + 1], members[#members + 1] = args[at], pool .. '/' .. args[at]
          if args[at] == suspect then exchange.suspect_ended = true end
        end
        if counted then redis.pcall('SREM', key_of(i, 3), unpack(members)) end
        if keyed then keyed.free(tokens, members) end
      end
    end
    position = last
  end
  return position
end
