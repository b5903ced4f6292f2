-- Store the result of a job for some milliseconds, and send it to the callers that wait for it. They left their channels in
-- the key. A long result is not sent: its callers read it. A server may refuse PUBLISH to this user; callers then find the
-- result when they look again.
local function answer(key, value, kept)
  local before = redis.pcall('SET', key, value, 'PX', kept, 'GET')
  if type(before) == 'table' then
    redis.call('SET', key, value, 'PX', kept)
  elseif before and string.sub(before, 1, 8) == 'waiting ' then
    local message = key .. '\n' .. (#value <= 65536 and value or '')
    for channel in string.gmatch(string.sub(before, 9), '%S+') do redis.pcall('PUBLISH', channel, message) end
  end
end
