# Sidekiq under the contract of contract.py. usual: 10 threads, INFO log; best: 5 threads, warnings only.
require "json"
require "sidekiq"

# ruby-redis 4.8 warns at every BRPOP of this Sidekiq; a departure from how it comes.
Redis.silence_deprecations = true if Redis.respond_to?(:silence_deprecations=)

COUNT = Integer(ENV.fetch("BENCH_COUNT", "1000"))
FIRST = Integer(ENV.fetch("BENCH_FIRST", "0"))
GAP = Float(ENV.fetch("BENCH_GAP", "0"))
SLEEP = Float(ENV.fetch("BENCH_SLEEP", "0"))
BEST = ENV["BENCH_CONFIG"] == "best"
CHUNK = 1000
url = { url: ENV.fetch("BENCH_URL") }
Sidekiq.configure_client { |config| config.redis = url }
Sidekiq.configure_server { |config| config.redis = url }
Sidekiq.logger.level = Logger::WARN if BEST

if ENV["BENCH_LEDGER"]
  LEDGER = File.open(ENV["BENCH_LEDGER"], "r+b")
  SIZE = LEDGER.size / 9
  COUNTS = Array.new(SIZE, 0)
end

JOBS = Array.new(Integer(ENV.fetch("BENCH_NAMES", "5"))) do |k|
  Object.const_set("Job#{k}", Class.new do
    include Sidekiq::Worker

    def perform(i)
      LEDGER.pwrite([Time.now.to_f].pack("d"), 8 * i)
      LEDGER.pwrite([COUNTS[i] += 1].pack("C"), 8 * SIZE + i)
      sleep SLEEP if SLEEP.positive?
    end
  end)
end

def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

def chunks
  (0...COUNT).each_slice(CHUNK * JOBS.size).flat_map do |slice|
    slice.group_by { |i| i % JOBS.size }.map { |k, batch| [JOBS[k], batch] }
  end
end

def bulk
  (job, batch), *rest = chunks
  Sidekiq::Client.push_bulk("class" => job, "args" => batch.map { |i| [i] })
  first, before = Time.now.to_f, cpu
  rest.each { |each, some| Sidekiq::Client.push_bulk("class" => each, "args" => some.map { |i| [i] }) }
  [rest.sum { |_, some| some.size }, first, before, []]
end

def single
  sent = [Time.now.to_f]
  JOBS[FIRST % JOBS.size].perform_async(FIRST)
  first, before = Time.now.to_f, cpu
  (1...COUNT).each do |k|
    if GAP.positive?
      sleep [first + k * GAP - Time.now.to_f, 0].max
      sent << Time.now.to_f
    end
    JOBS[(FIRST + k) % JOBS.size].perform_async(FIRST + k)
  end
  [COUNT - 1, first, before, sent]
end

if $PROGRAM_NAME == __FILE__
  if ARGV[0] == "work"
    threads = BEST ? "5" : ENV.fetch("BENCH_CONCURRENCY", "10")
    exec "sidekiq", "-r", File.expand_path(__FILE__), "-c", threads
  end
  count, first, before, sent = ENV["BENCH_MODE"] == "bulk" ? bulk : single
  puts({ count: count, first: first, last: Time.now.to_f, cpu: cpu - before, sent: sent }.to_json)
end
