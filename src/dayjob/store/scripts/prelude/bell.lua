-- Wake one pool that waits for this bell. A key of a wrong type is replaced. No trouble with a bell may fail a script.
local function ring(bell)
  if type(redis.pcall('ZADD', bell, 0, '1')) == 'table' then
    redis.pcall('DEL', bell)
    redis.pcall('ZADD', bell, 0, '1')
  end
end
