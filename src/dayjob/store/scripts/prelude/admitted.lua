-- Store one job that has a unique key, an id chosen by its caller, or both. Nothing has them yet.
local function put_admitted(one, now)
  local due, life, unique, chosen = one.at or now, one.life, one.unique, one.chosen
  put_jobs(one.target, one.bell, one.payloads, one.at)
  if unique then
    if life == 0 then life = math.max(due - now, 0) + 2592000000 end
    redis.call('SET', unique, one.id, 'PX', string.format('%d', life))
  end
  if chosen then
    local kept = one.digest == '' and one.payloads[1] or one.digest
    redis.call('SET', chosen, string.format('%d ', one.at or 0) .. kept, 'EX', 86400)
  end
end
