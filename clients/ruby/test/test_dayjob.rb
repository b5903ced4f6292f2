# frozen_string_literal: true

require "json"
require "minitest/autorun"
require "redis"
require "securerandom"
require "dayjob"

VECTORS = File.expand_path("../../../vectors", __dir__)
URL = ENV.fetch("REDIS_URL") { abort "REDIS_URL names the server to test with" }

def load_vectors(file)
  JSON.parse(File.read(File.join(VECTORS, "#{file}.json"), encoding: "UTF-8"))
end

# `value` with namespace, ids and tagged values put in.
def filled(value, namespace = "", ids = [])
  case value
  when String then value.gsub("%ns%", namespace).gsub(/%(\d+)%/) { ids[Regexp.last_match(1).to_i - 1] }
  when Array then value.map { |one| filled(one, namespace, ids) }
  when Hash
    tag, inner = value.first
    case tag
    when "$int" then Integer(inner)
    when "$float" then { "NaN" => Float::NAN, "Infinity" => Float::INFINITY, "-Infinity" => -Float::INFINITY }[inner] || Float(inner)
    when "$repeat" then inner[0] * inner[1]
    when "$count" then Array.new(inner) { |number| { "n" => number } }
    else value.to_h { |key, one| [filled(key, namespace, ids), filled(one, namespace, ids)] }
    end
  else value
  end
end

class CanonicalTest < Minitest::Test
  load_vectors("canonical").tap do |vectors|
    vectors["rows"].each do |row|
      define_method("test_#{row["what"]}") { assert_equal row["json"], Dayjob::Canonical.dump(filled(row["value"])) }
    end
    vectors["refused"].each do |row|
      define_method("test_refused_#{row["what"]}") { assert_raises(Dayjob::Invalid) { Dayjob::Canonical.dump(filled(row["value"])) } }
    end
  end
end

class VectorTest < Minitest::Test
  load_vectors("enqueue")["cases"].each do |vector|
    define_method("test_#{vector["what"]}") { run_vector(vector) }
  end

  def setup
    @redis = Redis.new(url: URL, timeout: 60)
    @ns = "t#{SecureRandom.hex(6)}"
    @jobs = []
  end

  def teardown
    @redis.close
  end

  def run_vector(vector)
    filled(vector["given"], @ns).each { |command| @redis.call(*command) }
    now = nil
    enqueuer = Dayjob::Enqueuer.new(@redis, namespace: filled(vector["namespace"], @ns), clock: -> { Time.at(now.to_r / 1000) })
    answers = vector["calls"].map do |call|
      now = call["now"]
      make(enqueuer, filled(call, @ns))
    end
    assert_equal vector["answers"], answers
    filled(vector["keys"], @ns, @jobs.map(&:id)).each { |key, wanted| check(key, wanted) }
  end

  def make(enqueuer, call)
    enqueuer = enqueuer.using(**call["using"].transform_keys(&:to_sym)) if call["using"]
    answer = enqueuer.public_send(call["method"], *arguments(call))
    @jobs.concat(Array(answer.is_a?(Dayjob::Job) ? [answer] : answer))
    answer.is_a?(Array) ? answer.size : (answer ? "stored" : "duplicate")
  rescue Dayjob::Invalid
    "invalid"
  rescue Dayjob::Duplicate
    "duplicate"
  rescue Redis::CommandError
    "error"
  end

  def arguments(call)
    time = call["seconds"] || (call["at"] && Time.at(call["at"].to_r / 1000))
    [call["name"], time, call["items"] || call["args"]].compact
  end

  def check(key, wanted)
    return assert_equal(0, @redis.call("EXISTS", key), key) if wanted.nil?

    kind, value = wanted.first
    case kind
    when "list" then check_payloads(@redis.lrange(key, 0, -1).reverse, value)
    when "length" then assert_equal value, @redis.llen(key)
    when "set" then assert_equal value.sort, @redis.smembers(key).sort
    when "has" then assert_empty value - @redis.smembers(key)
    when "zset" then check_zset(@redis.zrange(key, 0, -1, with_scores: true), value)
    when "string" then check_string(key, value, wanted["ttl"])
    end
  end

  EXPIRY = /"expires":(\d+),"at":(\d+)\}\z/.freeze

  # Payloads are equal but for the moment they expire: Redis time at the call, plus what the vector has after its `at`.
  def check_payloads(found, wanted)
    assert_equal wanted.size, found.size
    wanted.zip(found) do |payload, mine|
      next assert_equal(payload, mine) unless payload.match?(EXPIRY)

      expires, at = payload.match(EXPIRY).captures.map(&:to_i)
      stored = mine[EXPIRY, 1].to_i - (expires - at)
      assert_includes (redis_now * 1000 - 60_000)..(redis_now * 1000), stored
      assert_equal payload, mine.sub(/\d+(?=,"at":\d+\}\z)/, expires.to_s)
    end
  end

  def redis_now = @redis.time.then { |seconds, micros| seconds + micros / 1e6 }

  def check_zset(found, wanted)
    check_payloads(found.map(&:first), wanted.map(&:first))
    now = redis_now
    wanted.zip(found) do |(_, wanted_score), (_, score)|
      next assert_equal(wanted_score, score) unless wanted_score.is_a?(Hash)

      assert_includes (now - 60)..now, score - wanted_score["in"]
    end
  end

  def check_string(key, value, ttl)
    assert_equal value, @redis.get(key)
    assert_includes (ttl - 60)..ttl, @redis.ttl(key) if ttl
  end
end

class EnqueuerTest < Minitest::Test
  def setup
    @redis = Redis.new(url: URL, timeout: 60)
    @ns = "t#{SecureRandom.hex(6)}"
    @jobs = Dayjob::Enqueuer.new(@redis, namespace: @ns)
  end

  def teardown
    @redis.close
  end

  def waiting = @redis.lrange("#{@ns}:jobs:a", 0, -1).reverse.map { |payload| JSON.parse(payload) }

  def test_ids_are_128_random_bits
    ids = Array.new(5) { @jobs.enqueue("a").id }
    assert_equal 5, ids.uniq.size
    ids.each { |id| assert_match(/\A\h{32}\z/, id) }
  end

  def test_arguments_may_be_keywords_a_hash_or_both
    @jobs.enqueue("a", user_id: 7)
    @jobs.enqueue("a", { "user_id" => 7 })
    @jobs.enqueue(:a, { "user_id" => 7 }, b: :c)
    assert_equal [{ "user_id" => 7 }, { "user_id" => 7 }, { "user_id" => 7, "b" => "c" }], waiting.map { |job| job["args"] }
  end

  def test_the_clock_is_the_machines_unless_told_otherwise
    before = Time.now.to_i
    @jobs.enqueue("a")
    assert_includes before..Time.now.to_i, waiting.first["t"]
    assert_equal waiting.first["t"], waiting.first["at"] / 1000
  end

  def test_a_stored_job_says_when_it_will_run_and_under_which_key
    job = @jobs.sourced("acme").enqueue_unique_in("a", 60, v: 1)
    assert_in_delta Time.now.to_f + 60, job.run_at.to_f, 30
    assert_equal ["a", { v: 1 }, "acme", "#{@ns}:unique:a:{\"v\":1}\n"], [job.name, job.args, job.source, job.unique_key]
  end

  def test_copies_made_by_using_do_not_change_the_first
    @jobs.sourced(1).using(expires: 5).enqueue("a")
    @jobs.enqueue("a")
    assert_equal [true, false], waiting.map { |job| job.key?("source") && job.key?("expires") }
  end

  def test_what_no_job_can_have_is_refused_in_words
    error = assert_raises(Dayjob::Invalid) { @jobs.using(sorce: 1) }
    assert_equal "using has no option sorce: it has id, source, unique_key, unique_for, expires", error.message
    assert_match(/no JSON for a Time/, assert_raises(Dayjob::Invalid) { @jobs.enqueue("a", at: Time.now) }.message)
    assert_match(/not UTF-8/, assert_raises(Dayjob::Invalid) { @jobs.enqueue("a", x: "\xff") }.message)
    assert_match(/same key/, assert_raises(Dayjob::Invalid) { @jobs.enqueue("a", { "x" => 1, x: 2 }) }.message)
    assert_match(/not a hash/, assert_raises(Dayjob::Invalid) { @jobs.enqueue_many("a", [1]) }.message)
    assert_match(/give a Time/, assert_raises(Dayjob::Invalid) { @jobs.enqueue_at("a", 5) }.message)
    assert_match(/out of range/, assert_raises(Dayjob::Invalid) { @jobs.enqueue_at("a", Time.at(10**12)) }.message)
    assert_match(/out of range/, assert_raises(Dayjob::Invalid) { @jobs.enqueue_unique_at("a", Time.at(-10**12)) }.message)
    assert_match(/from 0 to 100000000000/, assert_raises(Dayjob::Invalid) { @jobs.enqueue_in("a", 10**11 + 1) }.message)
    assert_empty @redis.keys("#{@ns}:*")
  end

  def test_the_furthest_times_are_stored
    @jobs.using(expires: 10**11).enqueue("a")
    @jobs.using(unique_for: 10**11).enqueue("a")
    @jobs.enqueue_unique_in("a", 10**11, v: 1)
    @jobs.enqueue_at("a", Time.at(10**12 - 1))
    assert_equal [2, 2], [waiting.size, @redis.zcard("#{@ns}:scheduled")]
  end

  def test_it_works_after_the_scripts_were_flushed
    @redis.script(:flush)
    @jobs.enqueue("a")
    assert_equal 1, waiting.size
  end

  def test_a_transaction_is_refused_since_it_answers_later
    error = assert_raises(Dayjob::Error) { @redis.multi { |tx| Dayjob::Enqueuer.new(tx, namespace: @ns).enqueue("a") } }
    assert_match(/plain connection/, error.message)
    assert_empty waiting
  end

  def test_threads_share_one_enqueuer
    Array.new(8) { |i| Thread.new { 25.times { |n| @jobs.enqueue("a", i: i, n: n) } } }.each(&:join)
    assert_equal 200, waiting.map { |job| job["args"] }.uniq.size
  end

  def test_a_forked_child_does_not_use_the_numbers_of_its_parent
    jobs = Dayjob::Enqueuer.new(PerProcess.new, namespace: @ns)
    jobs.enqueue("a", from: "before")
    child = fork do
      jobs.enqueue("a", from: "child")
      exit!(0)
    end
    Process.wait(child)
    jobs.enqueue("a", from: "parent")
    assert_equal %w[before child parent], waiting.map { |job| job["args"]["from"] }
  end

  def test_without_an_answer_it_raises_unknown
    nobody = Redis.new(host: "127.0.0.1", port: 1, reconnect_attempts: 0)
    error = assert_raises(Dayjob::Unknown) { Dayjob::Enqueuer.new(nobody).enqueue("a") }
    assert_match(/may be stored/, error.message)
    assert_raises(Dayjob::Unknown) { error.repeat }
  end

  def test_a_repeat_after_it_was_stored_stores_nothing
    deaf = Deaf.new(@redis)
    jobs = Dayjob::Enqueuer.new(deaf, namespace: @ns)
    lost = assert_raises(Dayjob::Unknown) { jobs.enqueue("a", n: 1) }
    deaf.hears = true
    assert_equal waiting.first["id"], lost.repeat.id
    assert_equal lost.repeat.id, lost.repeat.id
    jobs.enqueue("a", n: 2)
    assert_equal [{ "n" => 1 }, { "n" => 2 }], waiting.map { |job| job["args"] }
  end

  def test_a_repeat_of_many_goes_on_from_where_it_was
    deaf = Deaf.new(@redis, hears: true, after: 2)
    lost = assert_raises(Dayjob::Unknown) { Dayjob::Enqueuer.new(deaf, namespace: @ns).enqueue_many("a", Array.new(1200) { |n| { n: n } }) }
    assert_equal 1000, waiting.size
    deaf.hears, deaf.after = true, nil
    assert_equal((0...1200).to_a, lost.repeat.map { |job| job.args[:n] })
    assert_equal((0...1200).to_a, waiting.map { |job| job["args"]["n"] })
  end

  def test_a_repeat_of_a_duplicate_is_still_a_duplicate
    @jobs.enqueue_unique("a", v: 1)
    deaf = Deaf.new(@redis)
    lost = assert_raises(Dayjob::Unknown) { Dayjob::Enqueuer.new(deaf, namespace: @ns).enqueue_unique("a", v: 1) }
    @redis.del("#{@ns}:unique:a:{\"v\":1}\n")
    deaf.hears = true
    assert_nil lost.repeat
    assert_equal 1, waiting.size
  end

  def test_a_refusal_after_some_were_stored_is_unknown
    spoiled = Deaf.new(@redis, hears: true) { @redis.rename("#{@ns}:jobs:a", "#{@ns}:aside") && @redis.set("#{@ns}:jobs:a", "x") }
    lost = assert_raises(Dayjob::Unknown) { Dayjob::Enqueuer.new(spoiled, namespace: @ns).enqueue_many("a", Array.new(501) { |n| { n: n } }) }
    assert_match(/WRONGTYPE/, lost.message)
    @redis.rename("#{@ns}:aside", "#{@ns}:jobs:a")
    assert_equal 501, lost.repeat.size
    assert_equal((0...501).to_a, waiting.map { |job| job["args"]["n"] })
  end

  def test_a_refusal_is_the_librarys_own_error
    @redis.set("#{@ns}:jobs:a", "x")
    assert_match(/\AWRONGTYPE/, assert_raises(Redis::CommandError) { @jobs.enqueue("a") }.message)
  end

  # As a connection pool does it: each process has a connection of its own.
  class PerProcess
    def with = yield((@connections ||= {})[Process.pid] ||= Redis.new(url: URL, timeout: 60))
  end

  # A connection whose requests arrive and whose answers are lost, at once or after so many were heard; a block is
  # called after the first.
  class Deaf
    attr_accessor :hears, :after

    def initialize(redis, hears: false, after: nil, &spoil)
      @redis, @hears, @after, @spoil = redis, hears, after, spoil
    end

    def with = yield(self)

    def call(*words)
      answer = @redis.call(*words)
      @spoil&.call
      @spoil = nil
      @hears = false if @after && (@after -= 1).zero?
      raise Redis::ConnectionError, "Connection lost (ECONNRESET)" unless @hears

      answer
    end
  end
end
