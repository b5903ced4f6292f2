--@use rate_state
-- A rate limit with what it counts, in microseconds of Redis time. `unknown` if its definition is not of this kind,
-- `wrong` if a key has a wrong type. A rate is a bucket that is stored as the moment when it is full again (`full_at`);
-- `charged` sums up its charges since `epoch`, and `last` is the time of the last one. A window is a sorted set of starts.
-- What one key used before `reset`, when an operator reset the limit for all keys, does not count.
local function read_limiter(definition, kind, state, hold, at_us, reset)
  local one = {state = state, hold = hold, held_until = 0}
  reset = tonumber(reset or '')
  -- A reset that is ahead was made before the clock was set back. It must not hide the starts from now on.
  if reset and reset > at_us then reset = nil end
  if kind == 'keyed' and definition then kind, definition = 'lifted', 'lifted' end
  local stored, n, per, burst = string.match(definition or '', '^(%a+) ?(%d*) ?(%d*) ?(%d*)$')
  if stored == 'lifted' then
    one.kind = 'lifted'
  elseif stored ~= kind then
    one.unknown = true
  else
    one.kind, one.n, one.per, one.burst = kind, tonumber(n), tonumber(per), tonumber(burst)
  end
  local held = redis.pcall('GET', hold)
  if type(held) == 'table' then one.wrong = true end
  if type(held) == 'string' then one.held_until = (tonumber(held) or 0) * 1000 end
  if one.kind == 'rate' then
    one.interval = one.per / one.n
    one.room = one.burst * one.interval
    local text = redis.pcall('GET', state)
    if type(text) == 'table' then one.wrong = true end
    local epoch, last, charged, full_at, old = read_rate_state(text)
    if reset and epoch and tonumber(epoch) <= reset then epoch, last, charged, full_at, old = nil, nil, nil, nil, nil end
    one.epoch, one.last = epoch or string.format('%.0f', at_us), last or 0
    one.charged, one.full_at = charged or 0, full_at or 0
    if one.last > at_us then
      -- The clock was set back. The bucket fills up from now on as it would have from the last charge on.
      one.full_at, one.last = one.full_at - one.last + at_us, at_us
    end
    if old and math.abs(old - one.interval) > 0.001 then
      -- The rate of this key was changed. The same number of units is used under the new one, and older charges cannot
      -- be taken back any more.
      one.full_at = at_us + math.max(one.full_at - at_us, 0) * one.interval / old
      one.charged, one.epoch = 0, string.format('%.0f', at_us)
    end
  elseif one.kind == 'window' then
    -- A start that is further ahead than the window is long was recorded before the clock was set back.
    local from, to = string.format('(%.0f', math.max(at_us - one.per, reset or 0)), string.format('%.0f', at_us + one.per)
    local size = redis.pcall('ZCOUNT', state, from, to)
    if type(size) == 'table' then one.wrong = true end
    one.size = type(size) == 'number' and size or one.n
  end
  return one
end
-- The field of the hash limits that defines a limit; for one key of it, <limit>|<key>, too.
local function definition_field(limit)
  return 'limit:' .. string.match(limit, '^[^|]*')
end
-- How many more jobs may start now under a rule: limits by number, and the cost of a job.
local function spare(rule, at_us)
  local most = 1000000
  for _, each in ipairs(rule) do
    if each.held_until > at_us then return 0 end
    if each.kind == 'rate' then
      -- Half a microsecond makes up for rounding.
      local free = at_us + each.room - math.max(each.full_at, at_us) + 0.5
      most = math.min(most, math.floor(free / (rule.cost * each.interval)))
    elseif each.kind == 'window' then
      most = math.min(most, each.n - each.size)
    end
  end
  return math.max(most, 0)
end
-- The millisecond when jobs may start again under a rule. Where a limit would let jobs through more often than 20 times a
-- second, several are let through at once, as far as its burst and the waiting jobs allow.
local function next_start(rule, waiting, at_us)
  local at = at_us
  for _, each in ipairs(rule) do
    at = math.max(at, each.held_until)
    if each.kind == 'rate' then
      local price = rule.cost * each.interval
      -- At half of the burst, because a full bucket would lose what fills it until the pool is awake.
      local batch = math.max(1, math.min(math.ceil(each.burst / rule.cost / 2), math.ceil(50000 / price), waiting))
      at = math.max(at, each.full_at + batch * price - each.room)
      if rule.cost > each.burst then at = math.max(at, at_us + 60000000) end
    elseif each.kind == 'window' and each.size >= each.n then
      local starts = each.state
      local size = redis.call('ZCARD', starts)
      local first = redis.call('ZRANGE', starts, size - each.n, size - each.n, 'WITHSCORES')
      local free = math.min(tonumber(first[2]) or at_us, at_us) + each.per
      at = math.max(at, free)
      if waiting > 1 then at = math.max(at, at_us + math.min(50000, each.per / 20)) end
    end
  end
  return math.ceil(at / 1000)
end
