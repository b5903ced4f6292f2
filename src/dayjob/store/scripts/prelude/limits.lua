-- The limits of job names by their index, false for a name without one; nil if the key has a wrong type.
local function limits_of(limits, names)
  local found = {}
  for first = 1, #names, 500 do
    local some = redis.pcall('HMGET', limits, unpack(names, first, math.min(first + 499, #names)))
    if some.err then return nil end
    for i = 1, #some do found[first + i - 1] = some[i] end
  end
  return found
end
