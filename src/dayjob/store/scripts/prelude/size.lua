-- The size of a key; 0 if it has a wrong type.
local function size_of(command, key)
  local size = redis.pcall(command, key)
  return type(size) == 'number' and size or 0
end
