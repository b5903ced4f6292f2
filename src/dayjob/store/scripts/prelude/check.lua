-- Whether a reply of redis.pcall is no error. The error it is asked about is that of a key of a wrong type.
local function good(answer)
  return not (type(answer) == 'table' and answer.err)
end
