-- The numbers of members in the batch `id`, as their payloads have them; those that are false are left out.
local function numbers_of(payloads, id)
  local numbers = {}
  for _, payload in ipairs(payloads) do
    numbers[#numbers + 1] = string.match(payload, '.*"membership":%["' .. id .. '",(%d+)')
  end
  return numbers
end
-- Settle plain completions of members of one batch. `more` has the number of arguments of BITFIELD that set the bits of all
-- members, and these; then for each job name its index, how many tokens it has, and these. `base` is the index of the 4 keys
-- of the batch, and `above` has its numbers in the batches above it. The batch is judged once for all.
local function settle_members(exchange, id, base, above, more, scheduled, due)
  local batch, ended, dead, failed = KEYS[base], KEYS[base + 1], KEYS[base + 2], KEYS[base + 3]
  local held, payloads, late, key_of = exchange.held, {}, 0, exchange.key_of
  local bits = tonumber(more[1])
  local at = bits + 2
  while at < #more do
    local i, count, missing = tonumber(more[at]), tonumber(more[at + 1]), 0
    local last = at + 1 + count
    local found = redis.call('HMGET', held, unpack(more, at + 2, last))
    redis.call('HDEL', held, unpack(more, at + 2, last))
    local counted = exchange.limit[i] and not exchange.uncounted[i]
    for k = 1, count do
      if found[k] then
        payloads[#payloads + 1] = found[k]
        local token = more[at + 1 + k]
        if counted then redis.pcall('SREM', key_of(i, 3), exchange.pool .. '/' .. token) end
        if token == exchange.suspect then exchange.suspect_ended = true end
      else
        missing = missing + 1
      end
    end
    if missing < count then exchange.add('done', i, count - missing) end
    if missing > 0 then exchange.add('late', i, missing) end
    late, at = late + missing, last + 1
  end
  exchange.late = exchange.late + late
  if #payloads == 0 or redis.pcall('HEXISTS', batch, 'total') ~= 1 then return end
  if redis.pcall('EXISTS', dead, failed) ~= 0 then
    for _, n in ipairs(numbers_of(payloads, id)) do
      if redis.pcall('GETBIT', failed, n) == 1 then redis.pcall('SETBIT', failed, n, 0) end
      if redis.pcall('GETBIT', dead, n) == 1 then redis.pcall('SETBIT', dead, n, 0) end
    end
  end
  if late == 0 then
    redis.pcall('BITFIELD', ended, unpack(more, 2, bits + 1))
  else
    for _, n in ipairs(numbers_of(payloads, id)) do redis.pcall('SETBIT', ended, n, 1) end
  end
  local how = judge_batch(batch, ended, dead, exchange.now, scheduled, due)
  if how and above ~= '' then note_member(base + 4, above, how, exchange.now, scheduled, due) end
end
