-- Add records of ended attempts, one per line, to the history of a job name, which keeps the last `most` of them for `age`
-- milliseconds. If `most` is 0, the caps of the name are not known, and nothing is removed. No trouble with it may fail a script.
local function record(key, lines, most, age, now)
  for line in string.gmatch(lines, '[^\n]+') do
    if most > 0 then
      redis.pcall('XADD', key, 'MAXLEN', '~', string.format('%d', most), '*', 'r', line)
    else
      redis.pcall('XADD', key, '*', 'r', line)
    end
  end
  if most > 0 then
    redis.pcall('XTRIM', key, 'MINID', '~', string.format('%d', math.max(now - age, 0)))
    redis.pcall('PEXPIRE', key, string.format('%d', age))
  else
    redis.pcall('PEXPIRE', key, string.format('%d', age), 'NX')
  end
end
