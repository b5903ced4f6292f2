#!lua flags=allow-oom
--[[ beat: renew the lease of a pool, and make it the leader if there is none.

Called by: membership.beat
KEYS[1]  pools
KEYS[2]  state of this pool
KEYS[3]  leader
KEYS[4]  held of this pool
KEYS[5]  events of leaders
KEYS[6]  status of this pool
ARGV[1]  pool id
ARGV[2]  lease, milliseconds
ARGV[3]  milliseconds of leadership to take if there is no leader; 0 to leave the leadership alone
ARGV[4]  status to publish, JSON; or empty
Returns  {1 when registered, 0 when not; Redis milliseconds; 1 when this pool leads; {requests of operators: quiet, resume,
          stop, stacks}; {those of the tokens to cancel whose jobs go to dead}; tokens to cancel...}
Atomic because: the lease of a condemned pool must never be renewed.
]]
--@use time json event leader
local pools, state, leader, held, leaders, status = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id, lease, term, text = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local now = redis_time()
if not redis.call('ZSCORE', pools, id) then
  return {0, now, 0, {}, {}}
end
local fields = redis.call('HGETALL', state)

redis.call('ZADD', pools, 'XX', string.format('%d', now + lease), id)
if text ~= '' then redis.call('SET', status, text, 'EX', 3600) end
local leads = 0
if term ~= '0' then
  local taken = redis.call('SET', leader, id, 'NX', 'PX', term)
  if taken then log_leader(leaders, now, id) end
  if taken or redis.pcall('GET', leader) == id then leads = 1 end
end
local requests, kills = {}, {}
local answer = {1, now, leads, requests, kills}
for i = 1, #fields, 2 do
  local name = fields[i]
  if string.sub(name, 1, 7) == 'cancel:' then
    local token = string.sub(name, 8)
    if redis.pcall('HEXISTS', held, token) == 0 then
      redis.call('HDEL', state, name)
    else
      answer[#answer + 1] = token
      if fields[i + 1] == 'kill' then kills[#kills + 1] = token end
    end
  elseif string.sub(name, 1, 5) == 'wish:' then
    requests[#requests + 1] = string.sub(name, 6)
  end
end
return answer
