-- Returns the function that applies one entry of an exchange; the header of the script has the kinds of entries. An outcome of a node of
-- a workflow waits for the next exchange while its successors cannot be released, or if this one has released many.
local function new_entries(exchange, settler, state, scheduled, due)
  local held, again, settled, partitions = exchange.held, exchange.again, exchange.settled, exchange.partitions
  local stuck, releases, cancelled = exchange.stuck, exchange.releases, exchange.cancelled
  local runs_again = {retried = true, snoozed = true, given_back = true, held_back = true, rewound = true}
  local children, note, end_node, emit
  local released, max_released = 0, 1000
  -- A cheap check without parsing: a value that is not a job of this name must not replace the payload.
  local function is_job(payload, name)
    local beginning = '{"name":"' .. name .. '"'
    return string.sub(payload, 1, #beginning) == beginning and string.sub(payload, -1) == '}'
  end
  local function release(i, token, key, id, first)
    local holder = redis.pcall('GET', KEYS[key])
    if holder == id then
      redis.call('DEL', KEYS[key])
    elseif first and type(holder) == 'string' then
      -- gocraft's enqueuers store "1", or the job with its newest arguments; in that case run the stored job.
      if holder == '1' then
        redis.call('DEL', KEYS[key])
      elseif is_job(holder, exchange.name[i]) then
        redis.call('HSET', held, token, holder)
        redis.call('DEL', KEYS[key])
      end
    end
  end
  -- An entry of jobs that an atomic job enqueued; `more` are the arguments behind it.
  local function note_children(kind, i, token, when, key, value, more)
    if not children then
      --@use expiry soonest put admitted children
      children = new_children(exchange.now, scheduled, due)
    end
    if kind == 'stage' then
      children.stage(KEYS[key], tonumber(value), more)
    elseif kind == 'staged' then
      children.add(token, {list = KEYS[key], count = tonumber(when), released = KEYS[key + 1], record = value})
    else
      local one = {payloads = more, name = value}
      if kind == 'admitted' then
        local unique, chosen, life, digest, id = string.match(value, '^(%d) (%d) (%d+) (%S+) (.*)$')
        one.unique, one.chosen = unique == '1' and KEYS[key], chosen == '1' and KEYS[key + 1]
        one.life, one.digest, one.id = tonumber(life), digest == '-' and '' or digest, id
        one.name, key = table.remove(more), key + 2
      end
      if i > 0 then
        one.target = exchange.key_of(i, 1)
      else
        one.target, one.bell, one.known = KEYS[key], KEYS[key + 1], KEYS[key + 2]
      end
      children.add(token, one, when)
    end
  end
  -- An entry of the stream of a job; `more` are its fields.
  local function note_emitted(key, life, begins, more)
    if not emit then
      --@use stream
      emit = function(...) add_to_stream(...) end
    end
    emit(KEYS[key], begins, life, more)
  end
  -- An entry behind the outcome of its attempt, which was applied.
  local function follow(kind, i, token, payload, amount, key, value, more)
    if kind == 'records' then
      add_records(KEYS[key], payload, amount)
      exchange.recorded[KEYS[key]] = {amount, tonumber(value)}
    elseif kind == 'logs' then
      redis.pcall('HSET', KEYS[key], value, payload)
      redis.pcall('HDEL', KEYS[key], string.format('%d', value - 10))
      redis.pcall('PEXPIRE', KEYS[key], string.format('%d', amount))
    elseif kind == 'stream_end' then
      note_emitted(key, payload, false, more)
    elseif kind == 'worked' then
      if partitions and partitions[i] then partitions[i].worked(token, tonumber(payload)) end
    else
      if not note then
        --@use workflow node membership
        note = function(...) note_member(...) end
        end_node = function(...) return note_node(...) end
      end
      if kind == 'node' then
        local how, n = string.match(value, '^(%a+) (%d+)$')
        released = released + end_node(key, n, how, payload, more, exchange.now, scheduled, due)
      else
        note(key, value, payload, exchange.now, scheduled, due)
      end
    end
  end
  local function finish(kind, i, token, payload, amount, key, value, present, is_node)
    local cancel = present and not again and runs_again[kind] and redis.call('HGET', state, 'cancel:' .. token)
    if again then
      -- The first send removed all attempts that it settled, so one that is still held could not be settled.
      if present then stuck[#stuck + 1] = token end
    elseif not present then
      exchange.late = exchange.late + 1
      exchange.add('late', i, 1)
    elseif cancel then
      cancelled[#cancelled + 1] = token
      cancelled[#cancelled + 1] = cancel
    elseif is_node and (released >= max_released or not settler.can('snoozed', i, token)) then
      stuck[#stuck + 1] = token
    elseif settler.can(kind, i, token) and (not children or children.fit(token)) then
      if children then children.store(token) end
      settler.settle(kind, i, token, payload, amount, key, value)
    else
      stuck[#stuck + 1] = token
    end
  end
  return function(kind, i, token, payload, amount, key, value, more, is_node)
    if kind == 'members' then
      if not again then
        --@use workflow node membership members
        settle_members(exchange, token, key, value, more, scheduled, due)
      end
      return
    end
    if kind == 'records' and token == '' then
      exchange.histories[#exchange.histories + 1] = {KEYS[key], payload, amount, tonumber(value)}
    end
    if kind == 'records' or kind == 'logs' or kind == 'worked' or kind == 'member' or kind == 'node' or kind == 'stream_end' then
      if settled[token] then follow(kind, i, token, payload, amount, key, value, more) end
      return
    end
    local present = redis.call('HEXISTS', held, token) == 1
    if kind == 'release' then
      if present and not again then release(i, token, key, value, amount == 1) end
      releases[#releases + 1] = token
      releases[#releases + 1] = redis.call('HGET', held, token)
    elseif kind == 'name_suspect' then
      if present and not again then exchange.named = token end
    elseif kind == 'spent' or kind == 'recharge' then
      if exchange.charges and not again and (present or kind == 'recharge') then
        exchange.charges.spend(exchange.pool .. '/' .. token, kind == 'recharge' and 'again' or payload, amount, value)
        if amount < 0 and partitions then
          -- Other names of the request may share the limit.
          for _, own in pairs(partitions) do own.try_again(token) end
        end
      end
    elseif kind == 'emit' then
      if present and not again then note_emitted(key, payload, value == '1', more) end
    elseif more then
      if present and not again then note_children(kind, i, token, payload, key, value, more) end
    else
      finish(kind, i, token, payload, amount, key, value, present, is_node)
    end
  end
end
