-- Whether a job owns the unique key with this value. dayjob stores the job id in it. gocraft's enqueuers store "1" or the
-- job's JSON, which belongs to this job as long as it has not been attempted.
local function owns(payload, id, holder)
  if holder == id then return true end
  if type(holder) ~= 'string' or not (holder == '1' or string.sub(holder, 1, 1) == '{') then return false end
  return not (string.find(payload, '"attempt":', 1, true) or string.find(payload, '"fails":', 1, true))
end
