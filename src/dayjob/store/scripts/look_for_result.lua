#!lua flags=allow-oom
--[[ look_for_result: return the result of a job, or note on which channel a caller waits for it.

Called by: results.look_for_result
KEYS[1]  result
ARGV[1]  channel of the process that waits
ARGV[2]  milliseconds to keep the note
Returns  the result or the error of the job, JSON; false if there is none yet
At most 4,000 bytes of channels are noted. Callers beyond that find the result when they look again.
Atomic because: a result that is stored between the read and the note would not be sent.
]]
local result, channel, kept = KEYS[1], ARGV[1], ARGV[2]
local found = redis.call('GET', result)
local channels = found and string.match(found, '^waiting (.*)$')
if found and not channels then return found end
if not channels then
  channels = channel
elseif not string.find(' ' .. channels .. ' ', ' ' .. channel .. ' ', 1, true) and #channels < 4000 then
  channels = channels .. ' ' .. channel
end
redis.call('SET', result, 'waiting ' .. channels, 'PX', kept)
return false
