-- A text as a JSON string.
local function json(text)
  return '"' .. string.gsub(text, '[%c"\\]', function(c) return string.format('\\u%04x', string.byte(c)) end) .. '"'
end
