-- End a request whose jobs were stored: note its number on its slot, for another hour if `keep`, add a new job name to
-- known_jobs, and wake a pool.
local function end_request(sent, number, keep, known, name, bell)
  if name ~= '' then redis.call('SADD', known, name) end
  if keep then
    redis.call('SET', sent, number, 'EX', 3600)
  else
    redis.call('SET', sent, number, 'KEEPTTL')
  end
  -- Enqueuers of all languages leave a bell of a wrong type alone; the next exchange replaces it.
  redis.pcall('ZADD', bell, 0, '1')
end
