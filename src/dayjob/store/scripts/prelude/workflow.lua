-- Whether a node that waits can go on, by the states of what it needs: 'r' to release it, 's' to skip it, nil to wait on.
-- `needs` are numbers; ! stands before those whose failure it waits for. A node whose needs were all skipped is skipped.
local function node_verdict(state_of, needs)
  local met, skipped, watched, failed, open = 0, 0, 0, 0, 0
  for watches, k in string.gmatch(needs, '(!?)(%d+)') do
    local state = state_of(tonumber(k))
    if watches == '!' then
      watched = watched + 1
      if state == 'd' or state == 'n' or state == 'k' then failed = failed + 1 end
      if state ~= 'c' and state ~= 's' then open = open + 1 end
    elseif state == 'c' or state == 'n' then
      met = met + 1
    elseif state == 's' or state == 'k' then
      skipped = skipped + 1
    else
      return nil
    end
  end
  if watched > 0 and failed == 0 then return open == 0 and 's' or nil end
  if skipped > 0 and met == 0 and failed == 0 then return 's' end
  return 'r'
end
-- A workflow by its 4 keys; nil if it is gone. Its states are read once, and written at once.
local function open_workflow(flow, states, results, nodes, now, scheduled, due)
  if redis.pcall('HEXISTS', flow, 'total') ~= 1 then return nil end
  local text = redis.pcall('GET', states)
  if type(text) ~= 'string' or not good(redis.pcall('HLEN', nodes)) or not good(redis.pcall('HLEN', results)) then return nil end
  local one, changed, moment = {released = 0}, {}, string.format('%d', now)
  function one.state(n) return changed[n] or string.sub(text, n + 1, n + 1) end
  function one.set(n, state)
    changed[n] = state
    redis.call('SETRANGE', states, n, state)
  end
  function one.size() return redis.call('STRLEN', states) end
  function one.forget(n) redis.call('HDEL', results, n) end
  local function release(n)
    local payload = redis.call('HGET', nodes, n)
    if payload and good(redis.pcall('ZADD', scheduled, string.format('%.3f', now / 1000), payload)) then
      one.set(n, 'r')
      one.released = one.released + 1
      redis.call('HSET', nodes, n .. ':from', moment)
      redis.call('HDEL', nodes, n .. ':to')
      redis.pcall('ZADD', due, 0, '1')
    end
  end
  -- Release or skip the nodes of a list that wait, and what follows from skipping them.
  function one.settle(list)
    local at = 1
    while list[at] do
      local n = list[at]
      at = at + 1
      if one.state(n) == 'w' then
        local verdict = node_verdict(one.state, redis.call('HGET', nodes, n .. ':in') or '')
        if verdict == 'r' then release(n) end
        if verdict == 's' then
          one.set(n, 's')
          one.following(n, list)
        end
      end
    end
  end
  -- Add the nodes that need node `n` to a list. With `again` those that only wait for a failure are left out, unless it was skipped.
  function one.following(n, list, again)
    for watches, m in string.gmatch(redis.call('HGET', nodes, n .. ':out') or '', '(!?)(%d+)') do
      m = tonumber(m)
      if not again or watches == '' or one.state(m) == 's' then list[#list + 1] = m end
    end
  end
  -- Note that the node `n` has ended as `state`, and settle what waits for it.
  function one.finish(n, state)
    one.set(n, state)
    redis.call('HSET', nodes, n .. ':to', moment)
    local list = {}
    one.following(n, list)
    one.settle(list)
  end
  function one.died(n)
    local policy = redis.call('HGET', nodes, n .. ':on')
    one.finish(n, policy == 'c' and 'n' or policy == 's' and 'k' or 'd')
  end
  function one.keep(n, result) if result ~= '' then redis.call('HSET', results, n, result) end end
  -- Note whether all nodes have ended, and how long the workflow is kept.
  function one.judge()
    local all = redis.call('GET', states)
    local open, bad = string.find(all, '[wrf]'), string.find(all, '[dx]')
    if not open then redis.call('HSETNX', flow, 'ended_at', moment) else redis.call('HDEL', flow, 'ended_at') end
    local seconds = (open or bad) and 16156800 or 604800
    redis.call('EXPIRE', flow, seconds)
    redis.call('EXPIRE', states, seconds)
    redis.call('EXPIRE', results, seconds)
    redis.call('EXPIRE', nodes, seconds)
  end
  -- Add nodes, 4 arguments for each: payload, nodes that it needs, nodes that need it, policy. Numbers count from the first of them.
  function one.add(list)
    local first, count, added = one.size(), #list / 4, {}
    local function shift(numbers) return (string.gsub(numbers, '%d+', function(n) return string.format('%d', n + first) end)) end
    redis.call('SETRANGE', states, first, string.rep('w', count))
    for i = 0, count - 1 do
      local payload, needs, out, policy = list[i * 4 + 1], list[i * 4 + 2], list[i * 4 + 3], list[i * 4 + 4]
      local n = string.format('%d', first + i)
      if first > 0 then
        local head, tail = string.match(payload, '^(.*"membership":%["%w+",)%d+(%].*)$')
        payload = head .. n .. tail
      end
      redis.call('HSET', nodes, n, payload)
      if needs ~= '' then redis.call('HSET', nodes, n .. ':in', shift(needs)) end
      if out ~= '' then redis.call('HSET', nodes, n .. ':out', shift(out)) end
      if policy ~= '' then redis.call('HSET', nodes, n .. ':on', policy) end
      changed[first + i] = 'w'
      added[i + 1] = first + i
    end
    redis.call('HINCRBY', flow, 'total', count)
    one.settle(added)
  end
  return one
end
