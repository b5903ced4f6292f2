-- What the slot stored with its last request, and whether this request is a resend of that or of an older one. A lower
-- number is a late copy of an older request: the server may still read it after the client closed the socket. If this one is new
-- and adds a `name` to `known`, that must be a set.
local function begin_request(sent, number, known, name)
  local last = redis.call('GET', sent)
  if not last or (tonumber(last) or tonumber(string.match(last, '^%d+'))) < tonumber(number) then
    if name and name ~= '' then redis.call('SCARD', known) end
    return last, false
  end
  -- WAIT and WAITAOF cover the last write of a connection. This write makes them cover the jobs on a resend too.
  redis.call('EXPIRE', sent, 3600)
  return last, true
end
