-- Add records of ended attempts, one per line, to the history of a job name, which keeps the last `most` of them. If `most` is 0, the
-- caps of the name are not known, and nothing is removed. No trouble with it may fail a script.
local function add_records(key, lines, most)
  for line in string.gmatch(lines, '[^\n]+') do
    if most > 0 then
      redis.pcall('XADD', key, 'MAXLEN', '~', string.format('%d', most), '*', 'r', line)
    else
      redis.pcall('XADD', key, '*', 'r', line)
    end
  end
end
-- Remove the records of a history that are older than `age` milliseconds, and let it expire when all are.
local function age_records(key, most, age, now)
  if most > 0 then
    redis.pcall('XTRIM', key, 'MINID', '~', string.format('%d', math.max(now - age, 0)))
    redis.pcall('PEXPIRE', key, string.format('%d', age))
  else
    redis.pcall('PEXPIRE', key, string.format('%d', age), 'NX')
  end
end
local function record(key, lines, most, age, now)
  add_records(key, lines, most)
  age_records(key, most, age, now)
end
