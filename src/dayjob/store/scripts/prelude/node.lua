-- Note what became of the node `n` of the workflow whose 4 keys begin at the index `base` of KEYS: completed, dead, failed (it runs again), skipped, cancelled or reopened. `more` are nodes
-- that it added. Only a node that was released can end: what an operator cancelled or started anew stays as it is. Returns how many
-- nodes were released.
local function note_node(base, n, how, result, more, now, scheduled, due)
  local one = open_workflow(KEYS[base], KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], now, scheduled, due)
  if not one then return 0 end
  n = tonumber(n)
  local old = one.state(n)
  if how == 'reopened' then
    if old ~= 'd' and old ~= 'n' and old ~= 'k' and old ~= 'x' then return 0 end
    one.set(n, 'r')
    redis.call('HDEL', KEYS[base + 3], n .. ':to')
  elseif old ~= 'r' and old ~= 'f' then
    return 0
  elseif how == 'failed' then
    one.set(n, 'f')
    return 0
  elseif how == 'completed' then
    one.keep(n, result)
    if #more > 0 then one.add(more) end
    one.finish(n, 'c')
  elseif how == 'dead' then
    one.died(n)
  else
    one.finish(n, how == 'skipped' and 's' or 'x')
  end
  one.judge()
  return one.released
end
