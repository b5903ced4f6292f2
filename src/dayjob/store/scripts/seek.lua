#!lua flags=no-writes
--[[ seek: look for payloads with an id, in a list, a sorted set or a hash. Whoever asks reads them to be sure.

Called by: find.seek
KEYS[1]  the list, sorted set or hash
ARGV[1]  1 to begin at the right of a list, or with the highest scores
ARGV[2]  how many entries to leave out first
ARGV[3]  how many entries to look at, at most
ARGV[4]  after how many bytes to stop
ARGV[5...]  the id as JSON strings, one of which is enough
Returns  {how many entries there are; how many entries are behind us, those left out included;
          place, payload, score or token, ... of ten at most}
Atomic because: it is one look.
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

-- Payloads from one place to another, and the tokens of a hash. A list that is read from its right comes the other way round.
local function read(from, upto)
  if kind == 'list' and reverse then return redis.call('LRANGE', key, -upto - 1, -from - 1) end
  if kind == 'list' then return redis.call('LRANGE', key, from, upto) end
  if kind == 'zset' and reverse then return redis.call('ZRANGE', key, from, upto, 'REV') end
  if kind == 'zset' then return redis.call('ZRANGE', key, from, upto) end
  local tokens = {unpack(fields, from + 1, upto + 1)}
  return #tokens > 0 and redis.call('HMGET', key, unpack(tokens)) or {}, tokens
end

-- A text without the quote that it begins with: quotes are everywhere, and what follows them is not.
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
  -- Few where they are large: what is read at once cannot be taken back.
  chunk = bytes - before < 65536 and math.min(chunk * 2, 64) or 8
end
answer[2] = place
return answer
