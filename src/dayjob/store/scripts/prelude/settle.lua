-- Ends attempts as their outcomes ask: moves their jobs, and frees the places that they have in limits. `to` has the keys of jobs
-- that wait in no queue, and the seconds of Redis time.
local function new_settler(exchange, to)
  local settler, held, now, add, key_of = {}, exchange.held, exchange.now, exchange.add, exchange.key_of
  local retry, dead, scheduled, done, broken, due = to.retry, to.dead, to.scheduled, to.done, to.broken, to.due
  local partitions, able = exchange.partitions, {done = true, dropped = true, cancelled = true}
  local targets = {
    retried = {'ZCARD', retry}, died = {'ZCARD', dead}, snoozed = {'ZCARD', scheduled}, kept = {'ZCARD', done},
    unreadable = {'LLEN', broken},
  }
  local has_result = {kept = true, died = true, dropped = true, cancelled = true}
  -- Whether the key to which an outcome moves its job has the right type.
  function settler.can(kind, i, token)
    if kind == 'given_back' or kind == 'rewound' or kind == 'held_back' then
      if partitions and partitions[i] and partitions[i].can_take_back(token) then return true end
      if good(redis.pcall('LLEN', key_of(i, 1))) then return true end
      exchange.note_wrong(i)
      return false
    end
    if able[kind] == nil then
      able[kind] = good(redis.pcall(targets[kind][1], targets[kind][2]))
    end
    return able[kind]
  end
  -- gocraft's web UI can only read scores that are whole seconds, so dead jobs and long delays get such scores, rounded up.
  local function score_in(amount)
    local at = now + amount
    return string.format('%.3f', (amount < 10000 and at or math.ceil(at / 1000) * 1000) / 1000)
  end
  local function put_back(kind, i, token, amount, key, value)
    local back, one = redis.call('HGET', held, token), partitions and partitions[i] and partitions[i].can_take_back(token)
    if one then
      partitions[i].put_back(one, back)
    else
      redis.call('RPUSH', key_of(i, 1), back)
    end
    add(kind, i, 1)
    if kind == 'held_back' and exchange.charges then exchange.charges.hold(value, amount) end
    -- The job released its unique key but never started. It takes the key again, unless another job has it by now.
    if key > 0 then redis.call('SET', KEYS[key], value, 'NX', 'PX', 2592000000) end
  end
  local function move(kind, i, token, payload, amount, key, value)
    if kind == 'retried' then
      redis.call('ZADD', retry, score_in(amount), payload)
      redis.pcall('ZADD', due, 0, '1')
      add('failed', i, 1)
      add('retried', i, 1)
    elseif kind == 'snoozed' then
      redis.call('ZADD', scheduled, score_in(amount), payload)
      redis.pcall('ZADD', due, 0, '1')
      add('snoozed', i, 1)
    elseif kind == 'died' then
      redis.call('ZADD', dead, to.seconds, payload)
      if amount == 1 then add('failed', i, 1) end
      add('dead', i, 1)
    elseif kind == 'done' then
      add('done', i, 1)
    elseif kind == 'dropped' then
      if amount == 1 then add('failed', i, 1) end
      add('discarded', i, 1)
    elseif kind == 'cancelled' then
      add('cancelled', i, 1)
    elseif kind == 'kept' then
      redis.call('ZADD', done, string.format('%.3f', (now + amount) / 1000), payload)
      add('done', i, 1)
    elseif kind == 'unreadable' then
      redis.call('RPUSH', broken, payload)
      add('broken', i, 1)
    else
      put_back(kind, i, token, amount, key, value)
    end
    if key > 0 and has_result[kind] then
      answer(KEYS[key], value, string.format('%d', math.max(kind == 'kept' and amount or 86400000, 1)))
    end
  end
  -- End one attempt.
  function settler.settle(kind, i, token, payload, amount, key, value)
    move(kind, i, token, payload, amount, key, value)
    redis.call('HDEL', held, token)
    exchange.settled[token] = true
    local member = exchange.pool .. '/' .. token
    if exchange.limit[i] then redis.pcall('SREM', key_of(i, 3), member) end
    if partitions and partitions[i] then partitions[i].free({token}, {member}) end
    if token == exchange.suspect then exchange.suspect_ended = true end
  end
  return settler
end
