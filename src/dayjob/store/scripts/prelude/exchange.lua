-- What the parts of the script exchange share: the request, what it has done so far, and most of its answer. `name`, `weight`,
-- `want`, `limit`, `rule`, `left` and `partitions` are by the index of a job name. `rule` has its rate limits and its key, if it
-- has any; `left` is how many more of its jobs can be fetched. Without rules, `charges` and `partitions` are nil.
local function new_exchange(first_key, pool, held, now, again)
  local counts, wrong, is_wrong = {}, {}, {}
  local exchange = {
    first_key = first_key, pool = pool, held = held, now = now, again = again,
    name = {}, weight = {}, want = {}, limit = {}, rule = {}, left = {}, uncounted = {},
    late = 0, releases = {}, stuck = {}, wrong = wrong, is_wrong = is_wrong, jobs = {}, cancelled = {},
    unknown = {}, marks = {}, next_keys = {}, unsorted = {},
    counts = counts, settled = {}, histories = {}, recorded = {},
  }
  -- 1: the queue of a name, 2: paused, 3: its held set, 4: its bell.
  function exchange.key_of(i, which)
    return KEYS[first_key + (i - 1) * 4 + which]
  end
  function exchange.note_wrong(i)
    if not is_wrong[i] then
      is_wrong[i] = true
      wrong[#wrong + 1] = i
    end
  end
  -- Add to a counter of a name in totals.
  function exchange.add(counter, i, n)
    local label = counter .. ':' .. exchange.name[i]
    counts[label] = (counts[label] or 0) + n
  end
  return exchange
end
