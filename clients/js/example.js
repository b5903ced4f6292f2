// One of everything. REDIS_URL and NAMESPACE say where; a pool with a job type create_watch(user_id: int) runs them.
import { Redis } from "ioredis";
import { createClient } from "redis";

import { Enqueuer, Unknown } from "./dayjob.js";

const { REDIS_URL: url = "redis://localhost:6379", NAMESPACE: namespace = "shop", LIBRARY } = process.env;

const redis = LIBRARY === "ioredis" ? new Redis(url) : createClient({ url });
redis.on("error", (error) => console.log(`connection: ${error.message}`));
if (LIBRARY !== "ioredis") await redis.connect();
const jobs = new Enqueuer(redis, { namespace });

let job;
try {
  job = await jobs.enqueue("create_watch", { user_id: 1 });
} catch (error) {
  if (!(error instanceof Unknown)) throw error;
  console.log("no answer; asking again");
  job = await error.repeat();
}
console.log(`stored ${job.id}`);

const soon = () => new Date(Date.now() + 200);
await jobs.enqueueIn("create_watch", 0.2, { user_id: 2 });
await jobs.enqueueAt("create_watch", soon(), { user_id: 3 });
await jobs.enqueueUnique("create_watch", { user_id: 4 });
if ((await jobs.enqueueUnique("create_watch", { user_id: 4 })) === null) console.log("a duplicate");
await jobs.enqueueUniqueIn("create_watch", 0.2, { user_id: 5 });
await jobs.enqueueUniqueAt("create_watch", soon(), { user_id: 6 });
await jobs.sourced("acme").enqueue("create_watch", { user_id: 7 });
await jobs.enqueueMany("create_watch", [{ user_id: 8 }, { user_id: 9 }]);
await jobs.using({ id: "watch-10", expires: 3600 }).enqueue("create_watch", { user_id: 10 });
await redis.quit();
