-- Remove what a pool published about itself when it joined, and return it as JSON.
local function forget_member(members, id)
  local about = redis.pcall('HGET', members, id)
  redis.pcall('HDEL', members, id)
  return type(about) == 'string' and about or '{}'
end
