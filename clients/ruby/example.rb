# frozen_string_literal: true

# One of everything. REDIS_URL and NAMESPACE say where; a pool with a job type create_watch(user_id: int) runs them.
require "redis"
require "dayjob"

redis = Redis.new(url: ENV.fetch("REDIS_URL", "redis://localhost:6379"), timeout: 60)
jobs = Dayjob::Enqueuer.new(redis, namespace: ENV.fetch("NAMESPACE", "shop"))

begin
  job = jobs.enqueue("create_watch", user_id: 1)
rescue Dayjob::Unknown => e
  puts "no answer; asking again"
  job = e.repeat
end
puts "stored #{job.id}"

jobs.enqueue_in("create_watch", 0.2, user_id: 2)
jobs.enqueue_at("create_watch", Time.now + 0.2, user_id: 3)
jobs.enqueue_unique("create_watch", user_id: 4)
puts "a duplicate" if jobs.enqueue_unique("create_watch", user_id: 4).nil?
jobs.enqueue_unique_in("create_watch", 0.2, user_id: 5)
jobs.enqueue_unique_at("create_watch", Time.now + 0.2, user_id: 6)
jobs.sourced("acme").enqueue("create_watch", user_id: 7)
jobs.enqueue_many("create_watch", [{ user_id: 8 }, { user_id: 9 }])
jobs.using(id: "watch-10", expires: 3600).enqueue("create_watch", user_id: 10)
