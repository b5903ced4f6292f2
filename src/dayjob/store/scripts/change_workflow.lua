#!lua flags=allow-oom
--[[ change_workflow: cancel, retry or skip nodes of a workflow, or check its waiting nodes again.

Called by: workflows.change_workflow
KEYS[1]  workflow
KEYS[2]  workflow, states of its nodes
KEYS[3]  workflow, results of its nodes
KEYS[4]  workflow, its nodes
KEYS[5]  cancelled_batches
KEYS[6]  scheduled
KEYS[7]  due
KEYS[8]  dead
ARGV[1]  workflow id
ARGV[2]  cancel: the node and what needs it | retry: run the node again, and then what needs it | skip: go on without the node |
         check: release what should have been released | lost: the job of the node is nowhere | died: it is dead | alive: it is not
ARGV[3]  number of the node; -1 for all, of a retry for those that are dead or cancelled
ARGV[4]  for retry, skip, lost, died and alive: the states of the nodes as the client read them before it read dead; "" if it read none
ARGV[5...]  2 per entry of dead that belongs to a node: number of the node; the entry, exactly as the client read it
Returns  {"done" | "gone" if there is no such workflow or node | "busy" if one of the nodes is stored as a job | "ended" if the state of the node
does not allow it | "moved" if a node has another state than the client read; how many nodes were changed; how many were released}
Atomic because: a node must be released once, for the states of the nodes that it needs.
]]
--@use time check workflow
local flow, states, results, nodes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local cancelled, scheduled, due, dead = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local id, what, first, seen = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local now = redis_time()
redis.call('ZCARD', cancelled)
redis.call('ZCARD', scheduled)
redis.call('ZCARD', dead)
local one = open_workflow(flow, states, results, nodes, now, scheduled, due)
if not one or first >= one.size() then
  return {'gone', 0, 0}
end

-- The node and all that needs it, directly or not; for -1 all nodes, or those that stop others and all that needs them.
local list, found = {}, {}
for n = math.max(first, 0), first < 0 and one.size() - 1 or first do
  local state = one.state(n)
  if first >= 0 or what ~= 'retry' or state == 'd' or state == 'x' then
    list[#list + 1] = n
    found[n] = true
  end
end
if first >= 0 or what == 'retry' then
  local at = 1
  while list[at] and (what == 'cancel' or what == 'retry') do
    local some = {}
    one.following(list[at], some, what == 'retry')
    for _, m in ipairs(some) do
      if not found[m] then
        found[m] = true
        list[#list + 1] = m
      end
    end
    at = at + 1
  end
end
local changed = 0
if what == 'cancel' then
  for _, n in ipairs(list) do
    local state = one.state(n)
    if state == 'r' or state == 'f' then
      redis.call('ZADD', cancelled, string.format('%d', now), id .. '/' .. n)
    end
    if state == 'w' or state == 'r' or state == 'f' then
      one.set(n, 'x')
      changed = changed + 1
    end
  end
  redis.call('ZREMRANGEBYSCORE', cancelled, '-inf', string.format('%d', now - 604800000))
  if first < 0 and changed > 0 then redis.call('HSET', flow, 'cancelled', string.format('%d', now)) end
elseif what == 'retry' or what == 'skip' then
  for _, n in ipairs(list) do
    local state = one.state(n)
    if state == 'r' or state == 'f' then return {'busy', 0, 0} end
    if what == 'skip' and state ~= 'w' and state ~= 'd' and state ~= 'x' then return {'ended', 0, 0} end
    if seen ~= '' and string.sub(seen, n + 1, n + 1) ~= state then return {'moved', 0, 0} end
  end
  for at = 5, #ARGV, 2 do
    if found[tonumber(ARGV[at])] then redis.call('ZREM', dead, ARGV[at + 1]) end
  end
  for _, n in ipairs(list) do
    redis.call('ZREM', cancelled, id .. '/' .. n)
    one.forget(n)
    one.set(n, 'w')
    changed = changed + 1
  end
  if changed > 0 then redis.call('HDEL', flow, 'cancelled') end
  if what == 'skip' then one.finish(first, 's') else one.settle(list) end
elseif what == 'check' then
  one.settle(list)
else
  local state = one.state(first)
  if string.sub(seen, first + 1, first + 1) ~= state then return {'moved', 0, 0} end
  if not string.find(what == 'alive' and 'dnk' or 'rf', state, 1, true) then return {'ended', 0, 0} end
  changed = 1
  if what == 'lost' then
    one.finish(first, 'x')
  elseif what == 'died' then
    one.died(first)
  else
    one.set(first, 'r')
  end
end
one.judge()
return {'done', changed, one.released}
