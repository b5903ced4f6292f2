#!lua
--[[ start_workflow: store a workflow, and release the nodes that need no others.

Called by: workflows.start_workflow
KEYS[1]  sent:<slot>
KEYS[2]  workflow
KEYS[3]  workflow, states of its nodes
KEYS[4]  workflow, results of its nodes
KEYS[5]  workflow, its nodes
KEYS[6]  workflows
KEYS[7]  scheduled
KEYS[8]  due
ARGV[1]  number of this request on its slot
ARGV[2]  workflow id
ARGV[3]  name of the workflow
ARGV[4...]  4 per node: payload; numbers of the nodes that it needs, with ! before those whose failure it waits for; numbers of
            the nodes that need it; c (continue) or s (skip) or "" for what its failure does
Returns  {"stored" | "again" for a resend; Redis milliseconds}
Atomic because: no node may end before all nodes that need it are stored.
]]
--@use time check sent workflow
local sent, flow, states, results, nodes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local workflows, scheduled, due = KEYS[6], KEYS[7], KEYS[8]
local number, id, name = ARGV[1], ARGV[2], ARGV[3]
local KEEP = 16156800

local now = redis_time()
local _, again = begin_request(sent, number)
if again or redis.call('EXISTS', flow, states, results, nodes) > 0 then
  return {'again', now}
end
redis.call('ZCARD', scheduled)
redis.call('ZCARD', workflows)

redis.call('HSET', flow, 'total', 0, 'name', name, 'created', string.format('%d', now))
redis.call('SET', states, '')
local one = open_workflow(flow, states, results, nodes, now, scheduled, due)
local added = {}
for at = 4, #ARGV do added[at - 3] = ARGV[at] end
one.add(added)
one.judge()
redis.call('ZADD', workflows, string.format('%d', now), id)
redis.call('ZREMRANGEBYSCORE', workflows, '-inf', string.format('%d', now - KEEP * 1000))
redis.call('SET', sent, number, 'EX', 3600)
return {'stored', now}
