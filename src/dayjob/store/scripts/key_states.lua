#!lua flags=no-writes
--[[ key_states: read the waiting and running jobs of some keys of a job name.

Called by: partitions.key_states
KEYS[1]  blocked
KEYS[2]  key_settings
KEYS[3...]  2 per key: partition, held set
ARGV[1...]  the keys, 500 at most
Returns  for each key: {jobs waiting; the oldest payload, only its end if it is long, or false; attempts counted; its
         settings, or false; the millisecond when it is tried again, or false when it is not blocked}
Atomic because: waiting jobs, running jobs and blocks must come from the same state.
]]
--@use size
local blocked, settings = KEYS[1], KEYS[2]
local LONG = 4096

local function text(answer)
  return type(answer) == 'string' and answer or false
end
local answer = {}
for i = 1, #ARGV do
  local list, held = KEYS[i * 2 + 1], KEYS[i * 2 + 2]
  local waiting, oldest = size_of('LLEN', list), false
  if waiting > 0 then
    oldest = string.sub(redis.call('LINDEX', list, -1), -LONG)
  end
  answer[i] = {
    waiting, oldest, size_of('SCARD', held), text(redis.pcall('HGET', settings, ARGV[i])),
    text(redis.pcall('ZSCORE', blocked, ARGV[i])),
  }
end
return answer
