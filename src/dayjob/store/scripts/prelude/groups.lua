-- Settle plain completions in groups, which stand in `args` behind `position`. Returns the position behind them.
local function settle_groups(exchange, groups, position, args)
  local held, pool, add, suspect, again = exchange.held, exchange.pool, exchange.add, exchange.suspect, exchange.again
  local limit, partitions, key_of = exchange.limit, exchange.partitions, exchange.key_of
  for _ = 1, groups do
    local i, count = tonumber(args[position + 1]), tonumber(args[position + 2])
    local first, last = position + 3, position + 2 + count
    if not again then
      local dropped = redis.call('HDEL', held, unpack(args, first, last))
      if dropped > 0 then add('done', i, dropped) end
      if dropped < count then
        exchange.late = exchange.late + count - dropped
        add('late', i, count - dropped)
      end
      -- Plain names do not pay for this loop.
      local keyed = partitions and partitions[i]
      for at = first, (limit[i] or keyed or suspect) and last or 0 do
        local member = pool .. '/' .. args[at]
        if limit[i] and not exchange.uncounted[i] then redis.pcall('SREM', key_of(i, 3), member) end
        if keyed then keyed.free(args[at], member) end
        if args[at] == suspect then exchange.suspect_ended = true end
      end
    end
    position = last
  end
  return position
end
