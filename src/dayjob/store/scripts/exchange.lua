#!lua flags=allow-oom
--[[ exchange: settle a pool's finished attempts and fetch new jobs for it.

Called by: consume.exchange
KEYS[1]  pools
KEYS[2]  state of this pool
KEYS[3]  held of this pool
KEYS[4]  limits
KEYS[5]  totals
KEYS[6]  retry
KEYS[7]  dead
KEYS[8]  scheduled
KEYS[9]  done
KEYS[10]  broken
KEYS[11]  due
KEYS[12]  minute
KEYS[13]  parked
KEYS[14...]  4 per job name: queue, paused, held set, bell; 2 per rate limit: its rate or window (overrides for a limit that
             counts by key), its hold; for each job name with keys: turns, blocked, debts, key_settings, and 2 per key:
             partition, held set; then the unique, result, history, logs and other keys that
             entries refer to
ARGV[1]  pool id
ARGV[2]  number of this request, from 1
ARGV[3]  number of the first new token
ARGV[4]  room: how many jobs to fetch, of any name
ARGV[5]  extra: how many more jobs to fetch of the names marked fast, if no other name has jobs left
ARGV[6]  lease, milliseconds
ARGV[7]  a random number from 0 to 1, below 1
ARGV[8]  maximum bytes to fetch
ARGV[9]  number of job names
ARGV[10]  number of entries
ARGV[11]  number of groups of plain completions
ARGV[12]  number of rate limits
ARGV[13]  number of job names with rules: rate limits, keys, or both
ARGV[14]  number of job names with keys
ARGV[15...]  3 per name: name, weight, 0: do not fetch | 1: fetch | 2: fetch, and the name is fast;
             2 per rate limit: its name, or <name>|<key> for one key; rate | window, or keyed for what counts by key;
             2 per job name with rules: name index, its rule as this pool knows it: cost, names of its limits, its key;
             per job name with keys: name index, estimated seconds of an attempt or 1, number of keys to fetch from, number
             of keys, the keys;
             7 per entry: kind, name index, token, payload, number, key index, value, and behind those of children, admitted
             and stage as many more as their number;
             per group: name index, count, tokens;
             2 per metric of this minute: field, increment
Returns  {"ok" | "rewound": Redis lost earlier requests of this pool | "again": a resend | "late": an older request |
          "refused": the pool is not registered; Redis milliseconds; attempts held; number of late outcomes;
          indexes of names that still have jobs to fetch; answers to release: token, payload or false, ...;
          tokens that could not be settled now; indexes of names whose keys have a wrong type;
          jobs: {name index, payload, ...} per name with jobs, under consecutive token numbers, or {-name index, key, payload,
          ...} per key with jobs; or for "again" {token, payload, ...};
          attempts left unsettled because their job was cancelled: token, 1 | kill, ...;
          indexes of names whose rule in Redis is not the one that this pool knows: nothing was fetched of them;
          marks of the limits that were charged: limit index, mark, ...;
          the next keys of names with keys: name index, {key, ...}, ...;
          indexes of names with keys whose queue has jobs to sort}
Kinds of entries that end the attempt, named like the classes of outcome.py (number and key index are 0 unless given here):
  done        nothing is stored
  kept        payload goes to done; number: milliseconds to keep it and the result; key, value: the result
  retried     payload goes to retry; number: delay in milliseconds
  snoozed     payload goes to scheduled; number: delay in milliseconds
  died        payload goes to dead; number: 1 when it counts as a failure; key, value: the error as the job's result
  dropped     nothing is stored; number: 1 when it counts as a failure
  cancelled   nothing is stored
  given_back  the held payload goes back to its queue; key, value: a unique key to take again, and the job id
  held_back   the held payload goes back to its queue; number: milliseconds for which limits hold; value: their indexes
  rewound     the held payload goes back to its queue
  unreadable  payload goes to broken
Kinds that do not end it:
  release       release a unique key; number: 1 on a first run; key, value: the unique key and the job id
  name_suspect  record the token in the pool's state
  records       payload: records of ended attempts, one per line; number: how many the key keeps; key, value: the history
                of a job name, and milliseconds to keep it. With a token, behind the outcome of that attempt, they are
                written if that outcome was applied; with no token, if no outcome of this request was late. Name index: 0.
  logs          behind the outcome of its attempt, written if that was applied. payload: the lines that the attempt logged;
                number: milliseconds to keep them; key, value: the logs of the job, and the number of the attempt. Name index: 0.
  worked        behind the outcome of its attempt, of a name whose keys share time; payload: seconds more, or less, than estimated
  member        behind the outcome of a member of a batch, noted if that was applied. payload: completed, dead or failed; key: 4 for
                its batch and each above: the batch, its bitmaps of members that ended, are dead, failed; value: the numbers of
                the member in them. Name index: 0.
  spent         correct what an attempt was charged; payload: undone, if it never started; number: units more, or less, than
                charged; value: limit index:mark, ...
  recharge      charge limits for an attempt that Redis lost; number: units; value: limit index:, ...
The jobs that an atomic job enqueued, ahead of its outcome and stored in the same step. payload: "now", "in" or "at", the
milliseconds from now or since the epoch, the milliseconds until they expire or 0; for members of a batch also its key index
and its id. Name index: 0 if their name is not among the names of this request; then key: their queue, its bell, known_jobs,
in this order.
  children      the payloads follow; value: their job name
  admitted      one job with a unique key or an id that its caller chose: its payload and its job name follow; key: the unique
                key and id:<id>, as for admit, ahead of those above; value: 1 when there is a unique key, 1 when the caller
                chose the id, milliseconds until the unique key expires or 0, digest or "-", job id
  stage         the payloads follow; key: a staged list; value: how many jobs are in it already
  staged        key: a staged list, and released; payload: its length; value: its record in released. Name index: 0.
A cancelled job never runs again: retried, snoozed, given_back, held_back and rewound leave its attempt held, and the
pool ends it.
Atomic because: an attempt must be in exactly one place, a limit must be counted in the step that fetches the job, and a
resend must find the whole request applied or nothing.
]]
--@use check bell limits fetchable record
local pools, state, held, limits, totals = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local retry, dead, scheduled, done, broken, due, minute = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local parked = KEYS[13]
local pool, number, token_number = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local room, extra, lease, u, most_bytes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local names, entries, groups = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local limiters, limited, keyed_names = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local FIRST_KEY, FIRST_ARG = 13, 14
local call, pcall_, format = redis.call, redis.pcall, string.format

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Refuse unregistered pools, and recognise requests that were applied before.
if not call('ZSCORE', pools, pool) then
  return {'refused', now, 0, 0, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}
end
local known = call('HMGET', state, 'last', 'suspect')
local last, suspect = tonumber(known[1] or '0'), known[2]
if number < last then
  return {'late', now, 0, 0, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}
end
local again = number == last
local status = again and 'again' or (number > last + 1 and 'rewound' or 'ok')

-- Check the types of all keys before the first write: a script that fails halfway is not rolled back.
call('HLEN', held)
local name, weight, want = {}, {}, {}
for i = 1, names do
  local at = FIRST_ARG + (i - 1) * 3
  name[i], weight[i], want[i] = ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3]
end
local function key_of(i, which)
  return KEYS[FIRST_KEY + (i - 1) * 4 + which]
end
local wrong, is_wrong = {}, {}
local function note_wrong(i)
  if not is_wrong[i] then
    is_wrong[i] = true
    wrong[#wrong + 1] = i
  end
end
local limit = limits_of(limits, name)
local limits_known = limit ~= nil
limit = limit or {}
local targets = {retried = {'ZCARD', retry}, died = {'ZCARD', dead}, snoozed = {'ZCARD', scheduled}, kept = {'ZCARD', done}, unreadable = {'LLEN', broken}}
local able = {done = true, dropped = true, cancelled = true}
-- The keys of names that have keys; nil if no name of this request has.
local partitions
local function can(kind, i, token)
  if kind == 'given_back' or kind == 'rewound' or kind == 'held_back' then
    if partitions and partitions[i] and partitions[i].can_take_back(token) then return true end
    if good(pcall_('LLEN', key_of(i, 1))) then return true end
    note_wrong(i)
    return false
  end
  if able[kind] == nil then
    able[kind] = good(pcall_(targets[kind][1], targets[kind][2]))
  end
  return able[kind]
end

local counts = {}
local function add(counter, i, n)
  local label = counter .. ':' .. name[i]
  counts[label] = (counts[label] or 0) + n
end
local late, stuck, releases, cancelled = 0, {}, {}, {}
local children, note
local settled, histories = {}, {}
local left, live = {}, {}
local runs_again = {retried = true, snoozed = true, given_back = true, held_back = true, rewound = true}
local named, suspect_ended = nil, false
local position = FIRST_ARG + names * 3

-- Rate limits and keys. A pool whose names have none passes none, and does not pay for any of this.
local rule, unknown, marks, next_keys, unsorted = {}, {}, {}, {}, {}
-- Names with keys that have no limit of their own: their attempts are not counted.
local uncounted = {}
local charges, spare_of, next_start_of, spare_under, next_start_under
if limiters + limited > 0 then
  --@use limiters charges
  local at_us, asked = time[1] * 1000000 + time[2], {}
  for n = 1, limiters * 2 do asked[n] = ARGV[position + n] end
  local limiter = read_limiters(limits, asked, FIRST_KEY + names * 4, at_us)
  position = position + limiters * 2
  for _ = 1, limited do
    rule[tonumber(ARGV[position + 1])] = read_rule(ARGV[position + 2], limiter)
    position = position + 2
  end
  charges = new_charges(limiter, at_us, spare)
  spare_under = function(one) return spare(one, at_us) end
  next_start_under = function(one, waiting) return next_start(one, waiting, at_us) end
  spare_of = function(i) return spare(rule[i], at_us) end
  next_start_of = function(i) return next_start(rule[i], left[i], at_us) end
  if keyed_names > 0 then
    --@use turns partitions
    partitions = {}
    for i = 1, names do uncounted[i] = limit[i] and string.sub(limit[i], 1, 2) == '- ' end
    local base = FIRST_KEY + names * 4 + limiters * 2
    for _ = 1, keyed_names do
      local i, estimate, heads, count = tonumber(ARGV[position + 1]), ARGV[position + 2], tonumber(ARGV[position + 3]), tonumber(ARGV[position + 4])
      local keys = {}
      for k = 1, count do keys[k] = ARGV[position + 4 + k] end
      position = position + 4 + count
      partitions[i] = new_partitions(base, keys, heads, at_us)
      base = base + 4 + count * 2
      if rule[i] then
        rule[i].price = tonumber(estimate)
        read_key_rules(rule[i], keys, heads, limiter, at_us)
      end
    end
  end
end

-- 1. Settle. Each destination is written before the attempt is removed from held.
-- gocraft's web UI can only read scores that are whole seconds, so dead jobs and long delays get such scores, rounded up.
local function score_in(amount)
  local at = now + amount
  return format('%.3f', (amount < 10000 and at or math.ceil(at / 1000) * 1000) / 1000)
end
local function settle(kind, i, token, payload, amount, key, value)
  if children then children.store(token) end
  if kind == 'retried' then
    call('ZADD', retry, score_in(amount), payload)
    pcall_('ZADD', due, 0, '1')
    add('failed', i, 1)
    add('retried', i, 1)
  elseif kind == 'snoozed' then
    call('ZADD', scheduled, score_in(amount), payload)
    pcall_('ZADD', due, 0, '1')
    add('snoozed', i, 1)
  elseif kind == 'died' then
    call('ZADD', dead, time[1], payload)
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
    call('ZADD', done, format('%.3f', (now + amount) / 1000), payload)
    add('done', i, 1)
  elseif kind == 'unreadable' then
    call('RPUSH', broken, payload)
    add('broken', i, 1)
  else
    local back, one = call('HGET', held, token), partitions and partitions[i] and partitions[i].can_take_back(token)
    if one then
      partitions[i].put_back(one, back)
    else
      call('RPUSH', key_of(i, 1), back)
    end
    add(kind, i, 1)
    if kind == 'held_back' and charges then charges.hold(value, amount) end
    -- The job released its unique key but never started. It takes the key again, unless another job has it by now.
    if key > 0 then call('SET', KEYS[key], value, 'NX', 'PX', 2592000000) end
  end
  if (kind == 'kept' or kind == 'died') and key > 0 then
    call('SET', KEYS[key], value, 'PX', format('%d', math.max(kind == 'kept' and amount or 86400000, 1)))
  end
  call('HDEL', held, token)
  settled[token] = true
  if limit[i] then
    pcall_('SREM', key_of(i, 3), pool .. '/' .. token)
  end
  if partitions and partitions[i] then partitions[i].free(token, pool .. '/' .. token, rule[i] and rule[i].places) end
  if token == suspect then suspect_ended = true end
end

-- A cheap check without parsing: a value that is not a job of this name must not replace the payload.
local function is_job(payload, of)
  local beginning = '{"name":"' .. of .. '"'
  return string.sub(payload, 1, #beginning) == beginning and string.sub(payload, -1) == '}'
end

local function release(i, token, key, id, first)
  local holder = pcall_('GET', KEYS[key])
  if holder == id then
    call('DEL', KEYS[key])
  elseif first and type(holder) == 'string' then
    -- gocraft's enqueuers store "1", or the job with its newest arguments; in that case run the stored job.
    if holder == '1' then
      call('DEL', KEYS[key])
    elseif is_job(holder, name[i]) then
      call('HSET', held, token, holder)
      call('DEL', KEYS[key])
    end
  end
end

-- An entry of jobs that an atomic job enqueued; `more` are the arguments behind it.
local function note_children(kind, i, token, when, key, value, more)
  if not children then
    --@use expiry soonest put admitted children
    children = new_children(now, scheduled, due)
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
      one.target = key_of(i, 1)
    else
      one.target, one.bell, one.known = KEYS[key], KEYS[key + 1], KEYS[key + 2]
    end
    children.add(token, one, when)
  end
end

for _ = 1, entries do
  local kind, i, token, payload = ARGV[position + 1], tonumber(ARGV[position + 2]), ARGV[position + 3], ARGV[position + 4]
  local amount, key, value = tonumber(ARGV[position + 5]), tonumber(ARGV[position + 6]), ARGV[position + 7]
  position = position + 7
  local present = call('HEXISTS', held, token) == 1
  local cancel = present and runs_again[kind] and call('HGET', state, 'cancel:' .. token)
  if kind == 'release' then
    if present and not again then release(i, token, key, value, amount == 1) end
    releases[#releases + 1] = token
    releases[#releases + 1] = call('HGET', held, token)
  elseif kind == 'name_suspect' then
    if present and not again then named = token end
  elseif kind == 'records' then
    if token == '' then
      histories[#histories + 1] = {KEYS[key], payload, amount, tonumber(value)}
    elseif settled[token] then
      record(KEYS[key], payload, amount, tonumber(value), now)
    end
  elseif kind == 'logs' then
    if settled[token] then
      pcall_('HSET', KEYS[key], value, payload)
      pcall_('HDEL', KEYS[key], format('%d', value - 10))
      pcall_('PEXPIRE', KEYS[key], format('%d', amount))
    end
  elseif kind == 'worked' then
    if settled[token] and partitions and partitions[i] then partitions[i].worked(token, tonumber(payload)) end
  elseif kind == 'member' then
    if settled[token] then
      if not note then
        --@use membership
        note = function(...) note_member(...) end
      end
      note(key, value, payload, now, scheduled, due)
    end
  elseif kind == 'spent' or kind == 'recharge' then
    if charges and not again and (present or kind == 'recharge') then
      charges.spend(pool .. '/' .. token, kind == 'recharge' and 'again' or payload, amount, value)
      if amount < 0 and partitions and partitions[i] then partitions[i].try_again(token) end
    end
  elseif kind == 'children' or kind == 'admitted' or kind == 'stage' or kind == 'staged' then
    local more = {unpack(ARGV, position + 1, position + amount)}
    position = position + amount
    if present and not again then note_children(kind, i, token, payload, key, value, more) end
  elseif again then
    -- The first send removed all attempts that it settled, so one that is still held could not be settled.
    if present then stuck[#stuck + 1] = token end
  elseif not present then
    late = late + 1
    add('late', i, 1)
  elseif cancel then
    cancelled[#cancelled + 1] = token
    cancelled[#cancelled + 1] = cancel
  elseif can(kind, i, token) and (not children or children.fit(token)) then
    settle(kind, i, token, payload, amount, key, value)
  else
    stuck[#stuck + 1] = token
  end
end

for _ = 1, groups do
  local i, count = tonumber(ARGV[position + 1]), tonumber(ARGV[position + 2])
  if not again then
    local dropped = call('HDEL', held, unpack(ARGV, position + 3, position + 2 + count))
    if dropped > 0 then add('done', i, dropped) end
    if dropped < count then
      late = late + count - dropped
      add('late', i, count - dropped)
    end
    -- Plain names do not pay for this loop.
    local keyed = partitions and partitions[i]
    for at = position + 3, (limit[i] or keyed or suspect) and position + 2 + count or 0 do
      if limit[i] and not uncounted[i] then pcall_('SREM', key_of(i, 3), pool .. '/' .. ARGV[at]) end
      if keyed then keyed.free(ARGV[at], pool .. '/' .. ARGV[at], rule[i] and rule[i].places) end
      if ARGV[at] == suspect then suspect_ended = true end
    end
  end
  position = position + 2 + count
end

if named then
  call('HSET', state, 'suspect', named)
elseif suspect_ended then
  call('HDEL', state, 'suspect')
end

-- 2. Count what can be fetched.
for i = 1, names do
  -- If the limits cannot be read, nothing is fetched. Finished attempts are settled all the same.
  local most = limits_known and fetchable(FIRST_KEY + (i - 1) * 4, limit[i])
  if not most then note_wrong(i) end
  left[i] = most or 0
  if limit[i] and not tonumber(limit[i]) then
    -- Another pool or an operator changed the limits of this name: nothing is fetched before this pool knows them too.
    if not rule[i] or rule[i].unknown or rule[i].text ~= string.match(limit[i], '^%S+ (.*)$') then
      unknown[#unknown + 1] = i
      left[i] = 0
    elseif rule[i].wrong then
      note_wrong(i)
      left[i] = 0
    end
  else
    rule[i] = nil
  end
  if partitions and partitions[i] and rule[i] then
    -- A name with keys is fetched by key. What is in its queue must be sorted first.
    if most and call('LLEN', key_of(i, 1)) > 0 then unsorted[#unsorted + 1] = i end
    local known_rule = unknown[#unknown] ~= i and rule[i].by and not is_wrong[i]
    if not partitions[i].good then note_wrong(i) end
    local own = partitions[i]
    own.room = known_rule and own.good and own.room_under(key_of(i, 2), key_of(i, 3), limit[i]) or 0
    left[i] = own.room > 0 and math.min(own.count(rule[i], spare_under), own.room) or 0
  end
end

-- 3. Fetch: share the room among the names by weight, then the extra among the fast names.
local take, jobs = {}, {}
local function deal(slots, least)
  local players, evenly = {}, true
  for i = 1, names do
    if left[i] > 0 and want[i] >= least and not (rule[i] and spare_of(i) == 0) then players[#players + 1] = i end
  end
  while slots > 0 and #players > 0 do
    local sum, running, before, dealt, rest = 0, 0, 0, 0, {}
    for _, i in ipairs(players) do sum = sum + weight[i] end
    local most = evenly and charges and charges.shares(players, rule, weight)
    for n, i in ipairs(players) do
      running = running + (most and math.min(slots * weight[i] / sum, most[i]) or slots * weight[i] / sum)
      local upto = n == #players and not most and slots or math.floor(running + u)
      local k = math.min(upto - before, left[i])
      if rule[i] then
        -- Names that share a limit are dealt from what it leaves together.
        k = math.min(k, spare_of(i))
        charges.reserve(rule[i], k)
      end
      before = upto
      take[i] = (take[i] or 0) + k
      left[i] = left[i] - k
      dealt = dealt + k
      if left[i] > 0 and not (rule[i] and spare_of(i) == 0) then rest[#rest + 1] = i end
    end
    -- If rounding dealt nothing, the first names take what there is.
    evenly = dealt > 0
    slots, players = slots - dealt, rest
    -- Use other digits of u for the next round, so that one round's rounding does not bias the next.
    u = (u * 65536 + 0.6180339887498949) % 1
  end
end

local function fetch(i, count, bytes, one)
  local queue, group, label = key_of(i, 1), {i}, name[i]
  if one then queue, group, label = one.list, {-i, one.key}, name[i] .. '|' .. one.key end
  local empty = #group
  -- Whether something counts the attempts by their members; plain names have none.
  local counted = limit[i] or rule[i] or one
  local chunk = one and 32 or 4
  while count > 0 and bytes > 0 do
    chunk = math.min(chunk, count)
    local payloads = call('LRANGE', queue, -chunk, -1)
    local pairs_, members, taken = {}, {}, 0
    for p = #payloads, 1, -1 do
      if bytes <= 0 then break end
      local token = format('%d:%s', token_number, label)
      token_number = token_number + 1
      taken = taken + 1
      bytes = bytes - #payloads[p]
      pairs_[taken * 2 - 1], pairs_[taken * 2] = token, payloads[p]
      if counted then members[taken] = pool .. '/' .. token end
      group[#group + 1] = payloads[p]
    end
    call('HSET', held, unpack(pairs_))
    if limit[i] and not uncounted[i] then call('SADD', key_of(i, 3), unpack(members)) end
    if rule[i] then charges.record_starts(rule[i], members) end
    if one then
      local held_of_key = one.held
      if one.places > 0 then call('SADD', held_of_key, unpack(members)) end
      if one.rule then charges.record_starts(one.rule, members) end
    end
    call('LTRIM', queue, 0, -taken - 1)
    count = count - taken
    chunk = math.min(chunk * 4, 32)
  end
  -- The group is empty if the names before it used up the bytes.
  if #group > empty then jobs[#jobs + 1] = group end
  return bytes, count
end

if again then
  local all = call('HGETALL', held)
  for p = 1, #all, 2 do
    if tonumber(string.match(all[p], '^(%d+):')) >= token_number then
      jobs[#jobs + 1] = all[p]
      jobs[#jobs + 1] = all[p + 1]
    end
  end
else
  if room > 0 then deal(room, '1') end
  for i = 1, names do
    -- While a slow queue has jobs left, free slots are shared by weight, so nothing is prefetched from the fast ones.
    if left[i] > 0 and want[i] == '1' and not (rule[i] and spare_of(i) == 0) then extra = 0 end
  end
  if extra > 0 then deal(extra, '2') end
  for i = 1, names do
    if take[i] and take[i] > 0 then
      local untaken
      if partitions and partitions[i] and rule[i] then
        local own = partitions[i]
        untaken = take[i]
        for _, one in ipairs(own.deal(take[i], spare_under, charges.reserve)) do
          if one.take > 0 then
            local dealt, over = one.take, 0
            most_bytes, over = fetch(i, dealt, math.max(most_bytes, 0), one)
            if over > 0 then own.undo(one, over, charges.reserve) end
            untaken = untaken - dealt + over
          end
        end
        own.room = own.room - take[i] + untaken
      else
        most_bytes, untaken = fetch(i, take[i], most_bytes)
      end
      left[i] = left[i] + untaken
      if rule[i] then charges.reserve(rule[i], -untaken) end
      if most_bytes <= 0 then most_bytes = 0 end
    end
  end
end

-- 4. Ring the bell for the next pool if jobs are left, otherwise clear it. Park names that wait for a rate limit: the
-- leader rings their bells when the next job fits.
if charges then
  if not again then charges.store(marks) end
  for i in pairs(rule) do
    local own, at = partitions and partitions[i], nil
    if own then
      if own.counted then own.store(spare_under, next_start_under) end
      local following = own.next_keys()
      next_keys[#next_keys + 1] = i
      next_keys[#next_keys + 1] = following
      left[i] = own.room > 0 and #following or 0
    end
    if left[i] > 0 and spare_of(i) == 0 then
      at = next_start_of(i)
      left[i] = 0
    elseif own and own.room > 0 and left[i] == 0 then
      at = own.next_start()
    end
    if at then
      local first = pcall_('ZRANGE', parked, 0, 0, 'WITHSCORES')
      pcall_('ZADD', parked, format('%.3f', at / 1000), name[i])
      if not first.err and not (first[2] and tonumber(first[2]) * 1000 <= at) then pcall_('ZADD', due, 0, '1') end
    else
      pcall_('ZREM', parked, name[i])
    end
  end
end
for i = 1, names do
  if left[i] > 0 then
    live[#live + 1] = i
    ring(key_of(i, 4))
  else
    call('DEL', key_of(i, 4))
  end
end

if not again then
  for label, n in pairs(counts) do
    pcall_('HINCRBY', totals, label, n)
  end
  if position < #ARGV then
    for at = position + 1, #ARGV, 2 do
      pcall_('HINCRBY', minute, ARGV[at], ARGV[at + 1])
    end
    call('EXPIRE', minute, 262800)
  end
  if late == 0 then
    for _, one in ipairs(histories) do record(one[1], one[2], one[3], one[4], now) end
  end
  call('ZADD', pools, 'XX', format('%d', now + lease), pool)
  call('HSET', state, 'last', format('%d', number))
end
return {status, now, call('HLEN', held), late, live, releases, stuck, wrong, jobs, cancelled, unknown, marks, next_keys, unsorted}
