-- wrk: ask for the paths of a file, one after the other from a line on, and report as one line of JSON.
--   wrk … -s queries.lua URL -- FILE FIRST_LINE count|plain
local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init(args)
  paths, position, statuses = {}, tonumber(args[2]), ""
  for line in io.lines(args[1]) do
    paths[#paths + 1] = wrk.format("GET", line)
  end
  if args[3] == "count" then -- costs time, so only where statuses are asked for
    counts = {}
    response = function(status)
      counts[status] = (counts[status] or 0) + 1
      statuses = ""
      for code, count in pairs(counts) do
        statuses = statuses .. (statuses == "" and "" or ",") .. '"' .. code .. '":' .. count
      end
    end
  end
end

function request()
  position = position % #paths + 1
  return paths[position]
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\nRESULT {"requests":%d,"seconds":%.6f,"p50_ms":%.4f,"p90_ms":%.4f,"p99_ms":%.4f,"max_ms":%.4f,"not_2xx":%d,' ..
      '"socket_errors":%d,"timeouts":%d,"statuses":{%s}}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(90) / 1e3,
    latency:percentile(99) / 1e3, latency.max / 1e3, errors.status, errors.connect + errors.read + errors.write,
    errors.timeout, threads[1]:get("statuses")
  ))
end
