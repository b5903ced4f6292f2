-- The state of a rate as read_rate_state reads it. `interval` is nil if the rate counts all jobs together.
local function rate_text(epoch, last, charged, full_at, interval)
  full_at, charged = math.ceil(full_at), math.ceil(charged)
  local text = string.format('%s %.0f %.0f %.0f', epoch, last - epoch, charged, full_at - epoch - charged)
  return interval and text .. ' ' .. string.gsub(string.format('%.3f', interval), '%.?0+$', '') or text
end
