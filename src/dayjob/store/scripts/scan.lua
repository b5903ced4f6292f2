#!lua flags=no-writes
--[[ scan: read the newest records of one stream of the history that match. The caller parses them to confirm it.

Called by: history.scan
KEYS[1]  the stream
ARGV[1]  where to begin: + or an entry id, with ( in front to begin behind it
ARGV[2]  the oldest entry id to read
ARGV[3]  how many records to search at most
ARGV[4]  how many to return at most
ARGV[5]  microseconds: skip attempts that ran shorter or whose duration is not known; 0 to skip none
ARGV[6...]  texts that a record must have, all of them
Returns  {how many records were searched; id of the last one that was searched, or "" if there are no older ones;
          the ids of the matches, each followed by a space; the matches, each followed by a line end}
Atomic because: it is one read.
]]
--@use check
local first, last, most, enough = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local slower = tonumber(ARGV[5])
local CHUNK = 200
local ids, lines, searched = {}, {}, 0

-- The third number behind the word for how the attempt ended is for how long it ran.
local function ran(line)
  return tonumber(string.match(line, '"[a-z_]+",%-?%d+,%-?%d+,(%-?%d+)') or -1)
end
local function matches(line)
  if slower > 0 and ran(line) < slower then return false end
  for i = 6, #ARGV do
    if not string.find(line, ARGV[i], 1, true) then return false end
  end
  return true
end

while searched < most do
  local found = redis.pcall('XREVRANGE', KEYS[1], first, last, 'COUNT', math.min(CHUNK, most - searched))
  -- A key of a wrong type has no records, and must not keep the records of the other names from being read.
  if not good(found) then break end
  for _, entry in ipairs(found) do
    searched = searched + 1
    first = '(' .. entry[1]
    if matches(entry[2][2]) then
      ids[#ids + 1] = entry[1] .. ' '
      lines[#lines + 1] = entry[2][2] .. '\n'
      if #lines >= enough then return {searched, string.sub(first, 2), table.concat(ids), table.concat(lines)} end
    end
  end
  if #found < CHUNK and searched < most then return {searched, '', table.concat(ids), table.concat(lines)} end
end
return {searched, searched > 0 and string.sub(first, 2) or '', table.concat(ids), table.concat(lines)}
