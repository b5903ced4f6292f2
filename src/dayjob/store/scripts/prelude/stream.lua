-- Add an entry to the stream of a job. The first one of an attempt drops what earlier attempts emitted. No trouble with it may fail a
-- script.
local function add_to_stream(key, begins, life, fields)
  if begins then redis.pcall('XTRIM', key, 'MAXLEN', '0') end
  redis.pcall('XADD', key, 'MAXLEN', '~', '60000', '*', unpack(fields))
  redis.pcall('PEXPIRE', key, life)
end
