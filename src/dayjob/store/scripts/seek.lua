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

-- Payloads from one place to another, and what goes with each.
local function read(from, upto)
  local payloads, others = {}, {}
  if kind == 'list' then
    local found = reverse and redis.call('LRANGE', key, -upto - 1, -from - 1) or redis.call('LRANGE', key, from, upto)
    for i = 1, #found do payloads[i] = reverse and found[#found + 1 - i] or found[i] end
  elseif kind == 'zset' then
    local found = reverse and redis.call('ZRANGE', key, from, upto, 'REV', 'WITHSCORES') or redis.call('ZRANGE', key, from, upto, 'WITHSCORES')
    for i = 1, #found, 2 do payloads[#payloads + 1], others[#others + 1] = found[i], found[i + 1] end
  else
    for i = from + 1, math.min(upto + 1, total) do others[#others + 1] = fields[i] end
    if #others > 0 then payloads = redis.call('HMGET', key, unpack(others)) end
  end
  return payloads, others
end

local answer, place, bytes, chunk = {total, first}, first, 0, 8
local last = math.min(first + most, total)
while place < last and bytes < most_bytes and #answer < 2 + ENOUGH * 3 do
  local payloads, others = read(place, math.min(place + chunk, last) - 1)
  if #payloads == 0 then break end
  local size = 0
  for i = 1, #payloads do
    size = size + #payloads[i]
    for text = 5, #ARGV do
      if string.find(payloads[i], ARGV[text], 1, true) then
        answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = place + i - 1, payloads[i], others[i] or ''
        break
      end
    end
  end
  place, bytes = place + #payloads, bytes + size
  if size < 65536 then chunk = math.min(chunk * 2, 256) end
end
answer[2] = place
return answer
