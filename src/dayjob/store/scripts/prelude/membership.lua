-- Keep a key of a batch for 187 days from now on.
local function keep_batch(key)
  redis.call('EXPIRE', key, 16156800)
end
-- Put the callback of a batch for an event into scheduled, due now, unless it was sent before.
local function call_back(batch, event, now, scheduled, due)
  local payload, score = redis.call('HGET', batch, event), string.format('%.3f', now / 1000)
  if payload and redis.call('HEXISTS', batch, 'sent:' .. event) == 0 and good(redis.pcall('ZADD', scheduled, score, payload)) then
    redis.call('HSET', batch, 'sent:' .. event, string.format('%d', now))
    redis.pcall('ZADD', due, 0, '1')
  end
end
-- How many bits of a bitmap are set; nil if the key has a wrong type.
local function bits_of(bitmap)
  local count = redis.pcall('BITCOUNT', bitmap)
  return type(count) == 'number' and count or nil
end
-- What the members of a batch make of it: nil while some have not ended or more may come, else completed or dead, which is
-- how the batch ends as a member of the batch above it.
local function judge_batch(batch, ended, dead, now, scheduled, due)
  local known = redis.call('HMGET', batch, 'total', 'closed', 'cancelled')
  local total, all, bad = tonumber(known[1]), bits_of(ended), bits_of(dead)
  if known[2] ~= '1' or not all or not bad or all < total then return nil end
  redis.call('HSET', batch, 'ended_at', string.format('%d', now))
  call_back(batch, 'complete', now, scheduled, due)
  if known[3] or bad > 0 then return 'dead' end
  call_back(batch, 'success', now, scheduled, due)
  redis.call('EXPIRE', batch, 604800)
  redis.call('EXPIRE', ended, 604800)
  redis.call('EXPIRE', dead, 604800)
  return 'completed'
end
-- Note in a batch what became of its member `n`: completed, dead, failed (it runs again) or reopened. Returns what became of
-- the batch by that. A batch that is gone is left alone. No trouble with a bitmap may fail a script; an audit finds it.
local function note_end(batch, ended, dead, failed, n, how, now, scheduled, due)
  if redis.pcall('HEXISTS', batch, 'total') ~= 1 then return nil end
  if how == 'failed' then
    redis.pcall('SETBIT', failed, n, 1)
    keep_batch(failed)
    return nil
  end
  if redis.pcall('GETBIT', failed, n) == 1 then redis.pcall('SETBIT', failed, n, 0) end
  if how == 'dead' or redis.pcall('GETBIT', dead, n) == 1 then
    redis.pcall('SETBIT', dead, n, how == 'dead' and 1 or 0)
    keep_batch(dead)
  end
  if how == 'reopened' then
    redis.pcall('SETBIT', ended, n, 0)
    keep_batch(batch)
    keep_batch(ended)
    return redis.call('HDEL', batch, 'ended_at') == 1 and 'reopened' or nil
  end
  redis.pcall('SETBIT', ended, n, 1)
  if how == 'dead' then call_back(batch, 'dead', now, scheduled, due) end
  return judge_batch(batch, ended, dead, now, scheduled, due)
end
-- Note what became of a member in its batch and in those above it. KEYS has, from the index `base` on, 4 for each: the batch, and
-- its bitmaps of members that ended, are dead, and failed. `numbers` has the number of the member in each; -1 for a callback. For a
-- node of a workflow it is w and its number, and the 4 keys are those of the workflow. A node that is deleted has been cancelled.
local function note_member(base, numbers, how, now, scheduled, due)
  for n in string.gmatch(numbers, '%S+') do
    local batch, ended, dead, failed = KEYS[base], KEYS[base + 1], KEYS[base + 2], KEYS[base + 3]
    if n == '-1' then return end
    if string.sub(n, 1, 1) == 'w' then
      note_node(base, string.sub(n, 2), how == 'completed' and 'cancelled' or how, '', {}, now, scheduled, due)
      return
    end
    how = note_end(batch, ended, dead, failed, n, how, now, scheduled, due)
    if not how then return end
    base = base + 4
  end
end
