#!lua flags=allow-oom
--[[ change_limit: remove the concurrency limit of a job name, or enforce a new one once all attempts that pools hold are counted.

Called by: concurrency.begin_limit, concurrency.finish_limit, concurrency.abandon_limit, concurrency.lift_limit
KEYS[1]  limits
KEYS[2]  held set of the name
KEYS[3]  bell of the name
KEYS[4]  events of limits
ARGV[1]  job name
ARGV[2]  begin, finish, abandon or lift
ARGV[3]  mark that identifies this count; "" for lift
ARGV[4]  who changes it, for finish and lift: code or operator
ARGV[5]  the limit, for finish; else ""
ARGV[6]  the operator who changes it, or ""
Returns  begin: the mark of the count in progress; otherwise 1, or 0 when that count is no longer valid
Atomic because: the limit may only be enforced if every attempt fetched since the count began was counted.
]]
--@use time json event bell
local limits, members, bell, changes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name, what, mark, by, limit, actor = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
-- A limit too high to restrict anything makes every exchange count its attempts. Readers accept digits only, so they
-- do not show it as a limit.
local COUNTING = '1e6'

local stored = redis.call('HMGET', limits, name, name .. '|counting')
local before, counting = stored[1], stored[2]
-- The rule of a name with rate limits stands behind its concurrency limit, which is 1e6 if it has none.
local rule = string.match(before or '', '^%S*(.*)$')
if what == 'begin' then
  if not before then
    redis.call('HSET', limits, name, COUNTING)
    redis.call('DEL', members)
  end
  if before and counting then return counting end
  -- A name with keys and no limit of its own counts nothing before.
  if string.sub(before or '', 1, 2) == '- ' then
    redis.call('DEL', members)
    redis.call('HSET', limits, name, COUNTING .. rule)
  end
  redis.call('HSET', limits, name .. '|counting', mark)
  return mark
end
if what == 'abandon' then
  if counting ~= mark then return 0 end
  redis.call('HDEL', limits, name .. '|counting')
  if before == COUNTING then
    redis.call('HDEL', limits, name)
    redis.call('DEL', members)
  end
  return 1
end
if what == 'finish' then
  if not before or (counting and counting ~= mark) then return 0 end
  redis.call('HSET', limits, name, limit .. rule, name .. '|by', by)
  redis.call('HDEL', limits, name .. '|counting')
else
  redis.call('HDEL', limits, name, name .. '|by', name .. '|counting')
  if rule ~= '' then redis.call('HSET', limits, name, COUNTING .. rule) end
  -- Pools set their limit again when it is missing. This field keeps them from undoing an operator's removal.
  if by == 'operator' then redis.call('HSET', limits, name .. '|by', 'lifted') end
  if rule == '' then redis.call('DEL', members) end
end
local from = before and before ~= COUNTING and before or ''
if from ~= limit then
  local change = ',"before":' .. json(from) .. ',"after":' .. json(limit) .. ',"actor":' .. json(actor) .. '}'
  log_event(changes, redis_time(), '{"name":' .. json(name) .. change)
end
ring(bell)
return 1
