#!lua flags=no-writes
--[[ seek: look for payloads that contain a text, in a list, a sorted set or a hash. Whoever asks reads them to be sure.

Called by: find.seek
KEYS[1]  the list, sorted set or hash
ARGV[1]  1 to begin at the right of a list, or with the highest scores
ARGV[2]  how many entries to leave out first
ARGV[3]  how many entries to look at, at most
ARGV[4]  after how many bytes to stop
ARGV[5...]  texts, one of which is enough
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
    if string.find(payload, tails[text], 1, true) and string.find(payload, ARGV[text], 1, true) then return true end
  end
  return false
end

local answer, place, bytes, chunk = {total, first}, first, 0, 8
local last = math.min(first + most, total)
local backwards = kind == 'list' and reverse
while place < last and bytes < most_bytes and #answer < 2 + ENOUGH * 3 do
  local payloads, tokens = read(place, math.min(place + chunk, last) - 1)
  local count, size = #payloads, 0
  if count == 0 then break end
  for i = 1, count do
    local payload = payloads[backwards and count + 1 - i or i]
    size = size + #payload
    if fits(payload) then
      local other = tokens and tokens[i] or kind == 'zset' and redis.call('ZSCORE', key, payload) or ''
      answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = place + i - 1, payload, other
    end
  end
  place, bytes = place + count, bytes + size
  if size < 65536 then chunk = math.min(chunk * 2, 256) end
end
answer[2] = place
return answer
