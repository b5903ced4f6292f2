-- A payload with another time of expiry. Expiry follows Redis time, not the producer's clock. Only this number changes.
local function with_expiry(payload, moment)
  local head, tail = string.match(payload, '^(.*"expires":)%d+(,"at":%d+})$')
  return head and head .. string.format('%d', moment) .. tail or payload
end
