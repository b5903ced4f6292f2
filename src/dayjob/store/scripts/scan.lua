#!lua flags=no-writes
--[[ scan: read the newest records of some streams of the history that match. The caller parses them to confirm it.

Called by: history.scan
KEYS[1...]  the streams
ARGV[1]  the oldest entry id to read
ARGV[2]  microseconds: skip attempts that ran shorter or whose duration is not known; 0 to skip none
ARGV[3]  number of texts
ARGV[4...]  texts that a record must have, all of them; then 2 per stream: where to begin, which is + or an entry id, with ( in
            front to begin behind it; how many records to search at most
Returns  4 per stream: how many records were searched; id of the last one that was searched, or "" if there are no older ones;
         the ids of the matches, separated by spaces; the matches, separated by line ends
Atomic because: it is one read.
]]
--@use check
local oldest, slower, texts = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local FIRST_TEXT, CHUNK = 4, 200
local first_stream = FIRST_TEXT + texts

-- The third number behind the word for how the attempt ended is for how long it ran.
local function ran(line)
  return tonumber(string.match(line, '"[a-z_]+",%-?%d+,%-?%d+,(%-?%d+)') or -1)
end
local function matches(line)
  if slower > 0 and ran(line) < slower then return false end
  for i = FIRST_TEXT, first_stream - 1 do
    if not string.find(line, ARGV[i], 1, true) then return false end
  end
  return true
end

-- Searches one stream. Returns how many records that were, the last one or "", and the matches.
local function search(stream, begin, most)
  local ids, lines, count, searched, last = {}, {}, 0, 0, ''
  while searched < most do
    local asked = math.min(CHUNK, most - searched)
    local found = redis.pcall('XREVRANGE', stream, begin, oldest, 'COUNT', asked)
    -- A key of a wrong type has no records, and must not keep the records of the other names from being read.
    if not good(found) then break end
    for i = 1, #found do
      local id, line = found[i][1], found[i][2][2]
      if matches(line) then
        count = count + 1
        ids[count], lines[count] = id, line
      end
    end
    searched = searched + #found
    if #found < asked then return searched, '', ids, lines end
    last = found[#found][1]
    begin = '(' .. last
  end
  return searched, last, ids, lines
end

local answer = {}
for k = 1, #KEYS do
  local at = first_stream + 2 * (k - 1)
  local searched, last, ids, lines = search(KEYS[k], ARGV[at], tonumber(ARGV[at + 1]))
  answer[#answer + 1] = searched
  answer[#answer + 1] = last
  answer[#answer + 1] = table.concat(ids, ' ')
  answer[#answer + 1] = table.concat(lines, '\n')
end
return answer
