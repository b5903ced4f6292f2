-- The jobs that atomic jobs enqueued, by the token of their attempt. They are stored in the step that completes it.
local function new_children(now, scheduled, due)
  local children, of, sound = {}, {}, {}
  local function usable(command, key)
    if sound[key] == nil then sound[key] = good(redis.pcall(command, key)) end
    return sound[key]
  end
  -- `one` has the queue, its bell and the payloads; a staged list has its key, its length and its record in `released`.
  function children.add(token, one, when)
    local mode, amount, span, batch, id = string.match(when or '', '^(%a+) (%d+) (%d+) ?(%d*) ?(.*)$')
    one.batch, one.batch_id = KEYS[tonumber(batch)], id
    if mode == 'in' then one.at = now + amount end
    if mode == 'at' then one.at = tonumber(amount) end
    if one.at then one.target, one.bell = scheduled, due end
    if mode and tonumber(span) > 0 then
      for i = 1, #one.payloads do one.payloads[i] = with_expiry(one.payloads[i], now + span) end
    end
    of[token] = of[token] or {}
    table.insert(of[token], one)
  end
  -- Number jobs that join a batch: their payloads have a place for the number in it, and for those above it.
  local function join(batch, id, payloads)
    local above = redis.call('HGET', batch, 'above') or ''
    local first = redis.call('HINCRBY', batch, 'total', #payloads) - #payloads
    for i = 1, #payloads do
      local head, tail = string.match(payloads[i], '^(.*"membership":%[)[^%]]*(%].*)$')
      payloads[i] = head .. string.format('"%s",%d%s', id, first + i - 1, above) .. tail
    end
  end
  -- Add jobs to a staged list that has `before` of them. It expires unless its job completes.
  function children.stage(list, before, payloads)
    if before == 0 then redis.call('DEL', list) end
    if redis.pcall('LLEN', list) == before then
      redis.call('RPUSH', list, unpack(payloads))
      redis.call('EXPIRE', list, 3600)
    end
  end
  -- Whether all can be stored. A staged list may be incomplete, because Redis lost writes or was away for too long.
  function children.fit(token)
    for _, one in ipairs(of[token] or {}) do
      local list = one.list
      if list then
        if redis.pcall('LLEN', list) ~= one.count or not usable('ZCARD', one.released) then return false end
      elseif not usable(one.at and 'ZCARD' or 'LLEN', one.target) or one.batch and not usable('HLEN', one.batch) then
        return false
      end
    end
    return true
  end
  function children.store(token)
    for _, one in ipairs(of[token] or {}) do
      local unique, chosen, known, list, released = one.unique, one.chosen, one.known, one.list, one.released
      local taken = chosen and redis.call('EXISTS', chosen) == 1 or unique and redis.call('EXISTS', unique) == 1
      local batch = one.batch
      if batch and not taken and redis.call('HEXISTS', batch, 'total') == 1 then join(batch, one.batch_id, one.payloads) end
      if list then
        redis.call('ZADD', released, string.format('%d', now), one.record)
        redis.call('PERSIST', list)
        redis.pcall('ZADD', due, 0, '1')
      elseif not unique and not chosen then
        put_jobs(one.target, one.bell, one.payloads, one.at)
      elseif not taken then
        put_admitted(one, now)
      end
      if known then redis.pcall('SADD', known, one.name) end
    end
  end
  return children
end
