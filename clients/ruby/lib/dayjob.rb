# frozen_string_literal: true

require "digest"
require "securerandom"

# Enqueues jobs for dayjob workers. See docs/wire.md of dayjob for what is written where.
module Dayjob
  VERSION = "0.1.0"

  # What can go wrong here and is not the Redis library's own.
  class Error < StandardError; end

  # A name, an argument or an option that no job can have. Nothing was sent.
  class Invalid < Error; end

  # A job like it already waits; enqueue_unique and its kin answer nil for that.
  class Duplicate < Error; end

  # Redis gave no answer, or none that settles it: the jobs may be stored, in part or whole.
  class Unknown < Error
    def initialize(message, &again)
      super(message)
      @again = again
    end

    # Send the same request again, and answer for the whole call. It never stores a job twice; safe for an hour.
    def repeat = @again.call
  end

  # A job that was stored. `run_at` is a Time for one that waits for its time.
  Job = Struct.new(:name, :id, :args, :source, :unique_key, :run_at, keyword_init: true)

  # JSON as Go writes it: sorted keys, shortest numbers, HTML characters escaped. Unique keys are made of it.
  module Canonical
    ESCAPES = {
      '"' => '\"', "\\" => "\\\\", "\n" => '\n', "\r" => '\r', "\t" => '\t', "\b" => '\b', "\f" => '\f'
    }.freeze
    SPECIAL = /["\\<>&\u0000-\u001f\u2028\u2029]/.freeze

    module_function

    def dump(value)
      case value
      when nil then "null"
      when true, false, Integer then value.to_s
      when Float then float(value)
      when String, Symbol then string(value.to_s)
      when Array then "[#{value.map { |one| dump(one) }.join(",")}]"
      when Hash then object(value)
      else raise Invalid, "there is no JSON for a #{value.class}: give strings, numbers, true, false, nil, arrays, hashes"
      end
    end

    def object(hash)
      pairs = hash.to_h { |key, value| [string(key.to_s), dump(value)] }
      raise Invalid, "a hash has the same key as a string and as a symbol: #{hash.keys.inspect}" if pairs.size < hash.size

      # By the key itself, not by how it is escaped.
      sorted = hash.keys.map(&:to_s).sort_by { |key| key.encode("UTF-8").b }
      "{#{sorted.map { |key| "#{string(key)}:#{pairs[string(key)]}" }.join(",")}}"
    end

    def string(text)
      text = text.encode("UTF-8")
      raise Invalid, "not UTF-8: #{text.inspect}" unless text.valid_encoding?

      "\"#{text.gsub(SPECIAL) { |char| ESCAPES[char] || format('\u%04x', char.ord) }}\""
    rescue EncodingError => e
      raise Invalid, "not UTF-8: #{e.message}"
    end

    def float(value)
      raise Invalid, "#{value} is not JSON" unless value.finite?

      sign = value.negative? || 1 / value == -Float::INFINITY ? "-" : ""
      mantissa, exponent = value.abs.to_s.split("e")
      whole, fraction = mantissa.split(".")
      fraction = "" if fraction == "0"
      size = value.abs
      sign + (size.zero? || size.between?(1e-6, 1e21.prev_float) ? plain(whole, fraction, exponent.to_i) : scientific(whole, fraction, exponent.to_i))
    end

    def plain(whole, fraction, exponent)
      digits = whole + fraction
      point = whole.length + exponent
      return "0.#{"0" * -point}#{digits}" if point <= 0
      return digits.ljust(point, "0") if point >= digits.length

      "#{digits[0...point]}.#{digits[point..]}"
    end

    def scientific(whole, fraction, exponent)
      "#{whole}#{".#{fraction}" unless fraction.empty?}e#{exponent.negative? ? "-" : "+"}#{exponent.abs}"
    end
  end

  # Puts jobs in. Safe to share between threads if its connection is, and it survives a fork.
  class Enqueuer
    MOST_JOBS = 500
    MOST_BYTES = 1 << 20
    # The longest time in seconds, and the furthest moment in milliseconds, that a job can have.
    MOST_SECONDS = 10**11
    MOST_MILLISECONDS = 10**15
    NAME = %r{\A[[:graph:]&&[^:/|\{\}]]{1,200}\z}.freeze
    OPTIONS = %i[id source unique_key unique_for expires].freeze
    # What Redis says only where nothing was stored before; any other error may be the answer to a resend.
    REFUSALS = /\A(WRONGTYPE|NOPERM|NOAUTH|WRONGPASS)\b/.freeze

    NOW = ["now", 0].freeze
    Draft = Struct.new(:job, :payload)
    Slot = Struct.new(:id, :number, :pid)

    # Under its slot and number Redis knows a request again. A slot serves one call at a time.
    class Slots
      def initialize
        @lock = Mutex.new
        @free = []
      end

      def take
        slot = @lock.synchronize { @free.pop }
        # After a fork the slots are the parent's.
        slot = nil unless slot&.pid == Process.pid
        slot || Slot.new(SecureRandom.hex(16), 0, Process.pid)
      end

      def give(slot)
        @lock.synchronize { @free.push(slot) }
      end
    end
    private_constant :NOW, :Draft, :Slot, :Slots

    # `redis` is a connection or a ConnectionPool of them; `clock` says the time, a Time.
    def initialize(redis, namespace: "dayjob", clock: -> { Time.now })
      @redis = redis
      @prefix = namespace.empty? || namespace.end_with?(":") ? namespace : "#{namespace}:"
      @clock = clock
      @options = {}
      @slots = Slots.new
    end

    # Put a job in its queue.
    def enqueue(name, args = {}, **more)
      send_one(name, args.merge(more))
    end

    # Put a job in, to run after `seconds`.
    def enqueue_in(name, seconds, args = {}, **more)
      send_one(name, args.merge(more), ["in", wait(seconds)])
    end

    # Put a job in, to run at `time`.
    def enqueue_at(name, time, args = {}, **more)
      send_one(name, args.merge(more), ["at", moment(time)])
    end

    # Put a job in unless one like it waits; nil when one does.
    def enqueue_unique(name, args = {}, **more)
      send_one(name, args.merge(more), unique: true)
    end

    # As enqueue_unique, to run after `seconds`.
    def enqueue_unique_in(name, seconds, args = {}, **more)
      send_one(name, args.merge(more), ["in", wait(seconds)], unique: true)
    end

    # As enqueue_unique, to run at `time`.
    def enqueue_unique_at(name, time, args = {}, **more)
      send_one(name, args.merge(more), ["at", moment(time)], unique: true)
    end

    # Put many jobs of one name in, a few hundred to a round trip. All are checked before any is sent.
    def enqueue_many(name, list)
      raise Invalid, "one id cannot serve many jobs: drop using(id: ...)" if @options[:id]

      drafts = list.map { |args| draft(name, args, unique?) }
      deliver(name, batches(drafts), NOW, &:compact)
    end

    # An enqueuer whose jobs are for `source`: a tenant, a customer.
    def sourced(source) = using(source: source)

    # An enqueuer like this one whose jobs get these options: id, source, unique_key, unique_for, expires.
    def using(**options)
      unknown = options.keys - OPTIONS
      raise Invalid, "using has no option #{unknown.first}: it has #{OPTIONS.join(", ")}" unless unknown.empty?

      options.each { |key, value| check_option(key, value) }
      dup.tap { |twin| twin.instance_variable_set(:@options, @options.merge(options)) }
    end

    private

    def send_one(name, args, time = NOW, unique: false)
      deliver(name, [[draft(name, args, unique || unique?)]], time) do |(job)|
        raise Duplicate, "#{name}: a job like it already waits; use enqueue_unique, which answers nil for that" unless job || unique

        job
      end
    end

    def unique? = @options.key?(:unique_key) || @options.key?(:unique_for)

    def draft(name, args, unique)
      raise Invalid, "job name #{name.inspect}: use 1 to 200 characters without spaces, : / | { }" unless name.to_s.match?(NAME)
      raise Invalid, "the arguments of #{name} are a #{args.class}, not a hash" unless args.is_a?(Hash)

      json = Canonical.dump(args)
      key = unique_key(name, json) if unique
      job = Job.new(name: name.to_s, id: @options[:id] || SecureRandom.hex(16), args: args, source: @options[:source], unique_key: key)
      payload = write(job, json)
      raise Invalid, "#{name}: the job has #{payload.bytesize} bytes, the limit is #{MOST_BYTES}" if payload.bytesize > MOST_BYTES

      Draft.new(job, payload)
    end

    def write(job, json)
      now = (@clock.call.to_r * 1000).floor
      fields = { "name" => job.name, "id" => job.id, "t" => now / 1000 }.map { |key, value| "\"#{key}\":#{Canonical.dump(value)}" }
      fields << "\"args\":#{json}"
      extras = {}
      extras.update("unique" => true, "unique_key" => job.unique_key) if job.unique_key && !@options[:unique_for]
      extras["source"] = job.source unless job.source.nil?
      # The script replaces this number, so that the job expires on the Redis clock. It looks for it just before "at".
      extras["expires"] = now + milliseconds(:expires) if @options[:expires]
      extras["at"] = now
      "{#{(fields + extras.map { |key, value| "\"#{key}\":#{Canonical.dump(value)}" }).join(",")}}"
    end

    def unique_key(name, json)
      given = @options[:unique_key]
      rest = given.is_a?(String) ? given : "#{given ? Canonical.dump(given) : json}\n"
      "#{@prefix}unique:#{name}:#{rest}"
    end

    # Requests of bounded size; a job with a unique key has one of its own.
    def batches(drafts)
      bytes = MOST_BYTES
      drafts.each_with_object([]) do |one, all|
        bytes += one.payload.bytesize
        if bytes > MOST_BYTES || one.job.unique_key || all.last.size >= MOST_JOBS
          all.push([])
          bytes = one.payload.bytesize
        end
        all.last.push(one)
      end
    end

    # Send the batches in order. A slot whose request failed is not given back: its number belongs to the repeat.
    def deliver(name, batches, time, &read)
      slot = @slots.take
      requests = batches.map { |drafts| [drafts, slot.number += 1] }
      send_all(name, requests, time, slot, [], read).tap { @slots.give(slot) }
    end

    def send_all(name, requests, time, slot, jobs, read, repeated: false)
      until requests.empty?
        jobs.concat(put(name, *requests.first, time, slot.id))
        requests.shift
      end
      read.call(jobs)
    rescue Error
      raise
    rescue StandardError => e
      raise if !repeated && jobs.empty? && e.message.match?(REFUSALS)

      raise Unknown.new("#{name}: #{e.message} (#{e.class}); it may be stored, in part or whole (repeat is safe)") {
        send_all(name, requests, time, slot, jobs, read, repeated: true)
      }
    end

    def put(name, drafts, number, time, slot_id)
      job = drafts.first.job
      guard = "#{@prefix}sent:#{slot_id}"
      now = time[0] == "now"
      keys = [
        guard, "#{@prefix}#{now ? "jobs:#{name}" : "scheduled"}", "#{@prefix}known_jobs", "#{@prefix}#{now ? "bell:#{name}" : "due"}",
        job.unique_key || guard, @options[:id] ? "#{@prefix}id:#{job.id}" : guard
      ]
      argv = [number, name, *time, job.id, milliseconds(:unique_for), milliseconds(:expires), *drafts.map(&:payload)]
      answer, due, = evaluate(keys, argv)
      return [nil] if answer == "duplicate"

      drafts.map { |one| one.job.tap { |stored| stored.run_at = Time.at(due.to_r / 1000) unless now } }
    end

    def evaluate(keys, argv)
      reply = @redis.with do |connection|
        connection.call("EVALSHA", SHA, keys.size, *keys, *argv)
      rescue StandardError => e
        raise unless e.message.start_with?("NOSCRIPT")

        connection.call("EVAL", PUT, keys.size, *keys, *argv)
      end
      raise Error, "Redis answers later: give a plain connection, not a pipeline or a transaction" unless reply.is_a?(Array)

      reply
    end

    # An option that is a time, at least a millisecond; 0 where it was not given.
    def milliseconds(option)
      @options[option] ? [(@options[option] * 1000).floor, 1].max : 0
    end

    def wait(seconds)
      number = seconds.respond_to?(:to_r) && !seconds.is_a?(String) && (!seconds.is_a?(Float) || seconds.finite?)
      fits = number && seconds.to_r.between?(0, MOST_SECONDS)
      raise Invalid, "#{seconds.inspect}: give seconds as a number, from 0 to #{MOST_SECONDS}" unless fits

      (seconds.to_r * 1000).round
    end

    def moment(time)
      time = time.to_time if time.respond_to?(:to_time)
      raise Invalid, "#{time.inspect}: give a Time" unless time.is_a?(Time)

      moment = (time.to_r * 1000).round
      raise Invalid, "#{time.inspect}: the time is out of range" unless moment.abs < MOST_MILLISECONDS

      moment
    end

    def check_option(key, value)
      fits =
        case key
        when :id then value.is_a?(String) && value.match?(/\A[^[:cntrl:]]{1,200}\z/)
        when :source then value.nil? || value.is_a?(String) || value.is_a?(Integer)
        when :unique_key then value.is_a?(Hash) || (value.is_a?(String) && !value.empty?)
        else value.is_a?(Numeric) && value.positive? && value <= MOST_SECONDS
        end
      raise Invalid, "using(#{key}: #{value.inspect}): see the README for what it takes" unless fits
    end
  end

  # The script that stores jobs: clients/put.lua, word for word.
  PUT = <<~'LUA'
#!lua
--[[ put: store jobs of one name, for enqueuers in any language. The clients in this folder contain an exact copy of it.

KEYS[1]  sent:<slot>
KEYS[2]  queue, or scheduled
KEYS[3]  known_jobs
KEYS[4]  bell, or due
KEYS[5]  unique key, or KEYS[1] again where there is none
KEYS[6]  id:<id>, or KEYS[1] again where the caller did not choose the id
ARGV[1]  number of this request on its slot
ARGV[2]  job name
ARGV[3]  "now", "in" or "at"
ARGV[4]  milliseconds from now, or since the epoch; 0 for now
ARGV[5]  job id, for the unique key
ARGV[6]  milliseconds the unique key lives, counted from now; 0: thirty days after the job is due
ARGV[7]  milliseconds from now until the jobs expire, or 0. Above 0 each payload ends in "expires":<n>,"at":<n>}
ARGV[8...]  payloads, 500 at most; one where there is a unique key or a chosen id
Returns  {"stored" | "duplicate"; when it is due, Redis milliseconds; id of the holder of the unique key or ""}
Atomic because: a resend must find all or nothing, and two jobs with one key must not both get in.
]]
local sent, target, known, bell, unique, chosen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local number, name, mode, amount, id = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local life, span = tonumber(ARGV[6]), tonumber(ARGV[7])
local is_unique, is_chosen = unique ~= sent, chosen ~= sent

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = now
if mode == 'in' then at = now + amount end
if mode == 'at' then at = amount end

-- A resend, or a late copy: closing a socket does not recall what it sent.
local last = redis.call('GET', sent)
if last and tonumber(string.match(last, '^%d+')) >= tonumber(number) then
  local n, answer, first_at, holder = string.match(last, '^(%d+):(%a+):(-?%d+):(.*)$')
  if n == number then return {answer, tonumber(first_at), holder} end
  return {'stored', at, ''}
end
local function answered(answer, holder)
  redis.call('SET', sent, string.format('%s:%s:%d:%s', number, answer, at, holder), 'EX', 3600)
  return {answer, at, holder}
end

-- Check everything that a write below relies on: what a script wrote before an error stays written.
local function is_span(value) return value == 0 or value >= 1 and value < 1e15 end
if not (at > -1e15 and at < 1e15 and is_span(life) and is_span(span) and now + span < 1e15) then
  return redis.error_reply('ERR nothing was stored: the time to run, the life of the unique key or the expiry is out of range')
end
if span > 0 then
  -- Redis time decides when a job expires, not the clock of its enqueuer. Only that number is replaced.
  for i = 8, #ARGV do
    local head, tail = string.match(ARGV[i], '^(.*"expires":)%-?%d+(,"at":%-?%d+})$')
    if not head then
      return redis.error_reply('ERR nothing was stored: a payload does not end in "expires":<n>,"at":<n>}')
    end
    ARGV[i] = head .. string.format('%d', now + span) .. tail
  end
end
redis.call('SCARD', known)
local first = mode == 'now' and {} or redis.call('ZRANGE', target, 0, 0, 'WITHSCORES')
if is_chosen and redis.call('EXISTS', chosen) == 1 then
  return answered('stored', '')
end
if is_unique and redis.call('EXISTS', unique) == 1 then
  local holder = redis.pcall('GET', unique)
  return answered('duplicate', type(holder) == 'string' and holder or '')
end

for i = 8, #ARGV do
  if mode == 'now' then
    redis.call('LPUSH', target, ARGV[i])
  else
    redis.call('ZADD', target, string.format('%.3f', at / 1000), ARGV[i])
  end
end
if is_unique then
  if life == 0 then life = math.max(at - now, 0) + 2592000000 end
  redis.call('SET', unique, id, 'PX', string.format('%d', life))
end
if is_chosen then
  redis.call('SET', chosen, '1', 'EX', 86400)
end
redis.call('SADD', known, name)
-- A bell of a wrong type must not undo an enqueue; workers mend it.
if mode == 'now' or not first[2] or at / 1000 < tonumber(first[2]) then
  redis.pcall('ZADD', bell, 0, '1')
end
return answered('stored', '')
  LUA
  SHA = Digest::SHA1.hexdigest(PUT)
  private_constant :PUT, :SHA
end
