#!lua flags=no-writes
--[[ seek: search a list, sorted set or hash for payloads with an id. The caller parses the matches to confirm them.

Called by: find.seek
KEYS[1]  the list, sorted set or hash
ARGV[1]  1 to begin at the right of a list, or with the highest scores
ARGV[2]  how many entries to skip first
ARGV[3]  how many entries to search at most
ARGV[4]  after how many bytes to stop
ARGV[5...]  the id as JSON strings; a payload matches if it has one of them
Returns  {how many entries there are; how many entries were searched or skipped;
          index, payload, score or token, ... of ten matches at most}
Atomic because: the entries and the total must come from the same state.
]]
local key = KEYS[1]
local reverse, first, most, most_bytes = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local ENOUGH = 10

local kind = redis.call('TYPE', key).ok
local total, fields = 0, nil
if kind == 'list' then
  total = redis.call('LLEN', key)
elseif kind == 'zset' then
  total = redis.call('ZCARD', key)
elseif kind == 'hash' then
  fields = redis.call('HKEYS', key)
  total = #fields
end

-- The payloads in a range, and their tokens for a hash. A range at the right end of a list comes in reverse order.
local function read(from, upto)
  if kind == 'list' and reverse then return redis.call('LRANGE', key, -upto - 1, -from - 1) end
  if kind == 'list' then return redis.call('LRANGE', key, from, upto) end
  if kind == 'zset' and reverse then return redis.call('ZRANGE', key, from, upto, 'REV') end
  if kind == 'zset' then return redis.call('ZRANGE', key, from, upto) end
  local tokens = {unpack(fields, from + 1, upto + 1)}
  return #tokens > 0 and redis.call('HMGET', key, unpack(tokens)) or {}, tokens
end

-- Search for the id without its leading quote first: every payload is full of quotes, which makes the search slow.
local tails = {}
for text = 5, #ARGV do tails[text] = string.sub(ARGV[text], 2) end

local function fits(payload)
  for text = 5, #ARGV do
    local at = string.find(payload, tails[text], 1, true) and string.find(payload, ARGV[text], 1, true)
    while at do
      if string.find(string.sub(payload, math.max(1, at - 16), at - 1), '"id"%s*:%s*$') then return true end
      at = string.find(payload, ARGV[text], at + 1, true)
    end
  end
  return false
end

local answer, place, bytes, chunk = {total, first}, first, 0, 8
local last = math.min(first + most, total)
local backwards = kind == 'list' and reverse
local full = 2 + ENOUGH * 3
while place < last and bytes < most_bytes and #answer < full do
  local payloads, tokens = read(place, math.min(place + chunk, last) - 1)
  local count, before = #payloads, bytes
  if count == 0 then break end
  for i = 1, count do
    local payload = payloads[backwards and count + 1 - i or i]
    bytes = bytes + #payload
    if fits(payload) then
      local other = tokens and tokens[i] or kind == 'zset' and redis.call('ZSCORE', key, payload) or ''
      answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = place, payload, other
    end
    place = place + 1
    if bytes >= most_bytes or #answer >= full then break end
  end
  -- Read fewer large payloads at once, because the byte limit can only stop the search between two reads.
  chunk = bytes - before < 65536 and math.min(chunk * 2, 64) or 8
end
answer[2] = place
return answer
