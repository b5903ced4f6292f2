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
             counts by key), its hold; for each job name with keys: turns, blocked, debts, key_settings, the partition of
             each key, and, if attempts of keys are counted, the held set of each key; then the unique, result, history,
             logs, stream and other keys that entries refer to
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
             per job name with keys: name index, estimated seconds of an attempt or 1, 1 if its attempts are counted by key,
             number of next keys to answer with, number of keys to fetch from, number of keys, the keys;
             7 per entry: kind, name index, token, payload, number, key index, value, and behind those of children, admitted,
             stage, node, emit, stream_end and members as many more as their number;
             per group: name index, count, tokens;
             2 per metric of this minute: field, increment
Returns  {"ok" | "rewound": Redis lost earlier requests of this pool | "again": a resend | "late": an older request |
          "refused": the pool is not registered; Redis milliseconds; attempts held; number of late outcomes;
          indexes of names that still have jobs to fetch; answers to release: token, payload or false, ...;
          tokens that could not be settled now; indexes of names whose keys have a wrong type;
          jobs: {name index, payload, ...} per name with jobs, under consecutive token numbers, or {-name index, {key,
          number of jobs, ...}, payload, ...} per name with keys; or for "again" {token, payload, ...};
          attempts left unsettled because their job was cancelled: token, 1 | kill, ...;
          indexes of names whose rule in Redis is not the one that this pool knows: nothing was fetched of them;
          marks of the limits that were charged: limit index, mark, ...;
          the next keys of names with keys: name index, {key, ...}, 1 if its attempts are counted by key or 0, ...;
          indexes of names with keys whose queue has jobs to sort}
Kinds of entries that end the attempt, named like the classes of outcome.py (number and key index are 0 unless given here):
  done        nothing is stored
  kept        payload goes to done; number: milliseconds to keep it and the result; key, value: the result
  retried     payload goes to retry; number: delay in milliseconds
  snoozed     payload goes to scheduled; number: delay in milliseconds
  died        payload goes to dead; number: 1 when it counts as a failure; key, value: the error as the job's result
  dropped     nothing is stored; number: 1 when it counts as a failure; key, value: the reason as the job's result
  cancelled   nothing is stored; key, value: the reason as the job's result
  given_back  the held payload goes back to its queue; key, value: a unique key to take again, and the job id
  held_back   the held payload goes back to its queue; number: milliseconds for which limits hold; value: their indexes
  rewound     the held payload goes back to its queue
  unreadable  payload goes to broken
  members     plain completions of members of one batch. token: the id of the batch; number: of the arguments that follow: the
              number of arguments of BITFIELD that set the bits of all, and these; then for each job name its index, how many
              tokens follow, and these; key: 4 for the batch and each above, as for member; value: the numbers of the batch in
              those above, or "". Name index: 0.
Kinds that do not end it:
  release       release a unique key; number: 1 on a first run; key, value: the unique key and the job id
  name_suspect  record the token in the pool's state
  records       payload: records of ended attempts, one per line; number: how many the key keeps; key, value: the history
                of a job name, and milliseconds to keep it. With a token, behind the outcome of that attempt, they are
                written if that outcome was applied; with no token, if no outcome of this request was late. Name index: 0.
  logs          behind the outcome of its attempt, written if that was applied. payload: the lines that the attempt logged;
                number: milliseconds to keep them; key, value: the logs of the job, and the number of the attempt. Name index: 0.
  emit          what an attempt emitted, written while it is held. number: of the arguments that follow, the fields and values of
                an entry; key: the stream of the job; payload: milliseconds to keep it; value: 1 for the first of the attempt,
                which drops what earlier attempts emitted, else 0. Name index: 0.
  stream_end    behind the outcome of an attempt that emitted, written if that was applied. number, key, payload: as for emit.
                Name index: 0.
  worked        behind the outcome of its attempt, of a name whose keys share time; payload: seconds more, or less, than estimated
  member        behind the outcome of a member of a batch, noted if that was applied. payload: completed, dead or failed; key: 4 for
                its batch and each above: the batch, its bitmaps of members that ended, are dead, failed; value: the numbers of
                the member in them. Name index: 0.
  node          directly behind the outcome of a node of a workflow, noted if that was applied. payload: its result as JSON, or "";
                number: of the arguments that follow, 4 for each node that it added, as for start_workflow; key: the workflow, its
                states, results and nodes; value: completed, dead, failed, skipped or cancelled, and its number. Name index: 0.
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
-- The parts of this script. Each has a line of its own, so that the line number in an error of the server names the part.
--@use exchange
--@use groups
--@use count
--@use fetch
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

-- 1. Read the request. Types are checked before the first write: a script that fails halfway is not rolled back.
call('HLEN', held)
local exchange = new_exchange(FIRST_KEY, pool, held, now, again)
exchange.suspect, exchange.u, exchange.bytes, exchange.token_number = suspect, u, most_bytes, token_number
local name, weight, want, left = exchange.name, exchange.weight, exchange.want, exchange.left
for i = 1, names do
  local at = FIRST_ARG + (i - 1) * 3
  name[i], weight[i], want[i] = ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3]
end
-- If the limits cannot be read, nothing is fetched. Finished attempts are settled all the same.
local limit = limits_of(limits, name)
exchange.limits_known, exchange.limit = limit ~= nil, limit or {}
local position = FIRST_ARG + names * 3
if limiters + limited > 0 then
  -- A pool whose names have neither rate limits nor keys does not pay for them.
  --@use limiters charges rules
  position = read_rules(exchange, limits, time, {limiters, limited, keyed_names}, position, ARGV)
end

-- 2. Settle. Each destination is written before the attempt is removed from held.
if entries > 0 then
  --@use answer settle
  --@use entries
  local settler = new_settler(exchange, {
    retry = retry, dead = dead, scheduled = scheduled, done = done, broken = broken, due = due, seconds = time[1],
  })
  local apply = new_entries(exchange, settler, state, scheduled, due)
  for _ = 1, entries do
    local kind, i, token, payload = ARGV[position + 1], tonumber(ARGV[position + 2]), ARGV[position + 3], ARGV[position + 4]
    local amount, key, value, more = tonumber(ARGV[position + 5]), tonumber(ARGV[position + 6]), ARGV[position + 7], nil
    position = position + 7
    if kind == 'children' or kind == 'admitted' or kind == 'stage' or kind == 'staged' or kind == 'node' or kind == 'emit' or kind == 'stream_end' or kind == 'members' then
      more = {unpack(ARGV, position + 1, position + amount)}
      position = position + amount
    end
    apply(kind, i, token, payload, amount, key, value, more, ARGV[position + 1] == 'node')
  end
end
if groups > 0 then position = settle_groups(exchange, groups, position, ARGV) end
if exchange.named then
  call('HSET', state, 'suspect', exchange.named)
elseif exchange.suspect_ended then
  call('HDEL', state, 'suspect')
end

-- 3. Fetch what the limits allow: share the room among the names by weight, then the extra among the fast names.
count_jobs(exchange)
if again then
  fetch_again(exchange)
else
  fetch_shares(exchange, room, extra)
end

-- 4. Ring the bell of a name for the next pool if jobs are left, otherwise clear it. Names that wait for a rate limit are
-- parked: the leader rings their bells when the next job fits.
if exchange.charges then
  --@use park
  park_names(exchange, parked, due)
end
local live = {}
for i = 1, names do
  local bell = KEYS[FIRST_KEY + i * 4]
  if left[i] > 0 then
    live[#live + 1] = i
    ring(bell)
  else
    call('DEL', bell)
  end
end

-- 5. Count, and renew the lease.
if not again then
  for label, n in pairs(exchange.counts) do
    pcall_('HINCRBY', totals, label, n)
  end
  if position < #ARGV then
    for at = position + 1, #ARGV, 2 do
      pcall_('HINCRBY', minute, ARGV[at], ARGV[at + 1])
    end
    call('EXPIRE', minute, 262800)
  end
  -- Once for each history, whatever the number of attempts that were recorded.
  for key, caps in pairs(exchange.recorded) do age_records(key, caps[1], caps[2], now) end
  if exchange.late == 0 then
    for _, one in ipairs(exchange.histories) do record(one[1], one[2], one[3], one[4], now) end
  end
  call('ZADD', pools, 'XX', format('%d', now + lease), pool)
  call('HSET', state, 'last', format('%d', number))
end
return {
  status, now, call('HLEN', held), exchange.late, live, exchange.releases, exchange.stuck, exchange.wrong, exchange.jobs,
  exchange.cancelled, exchange.unknown, exchange.marks, exchange.next_keys, exchange.unsorted,
}
