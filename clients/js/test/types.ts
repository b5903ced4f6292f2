// Compiled, never run: what must and what must not type-check.
import { Redis } from "ioredis";
import { createClient } from "redis";

import { Enqueuer, Job, Unknown } from "../dayjob.js";

const jobs = new Enqueuer(createClient(), { namespace: "shop" });
new Enqueuer(new Redis());

export async function uses(): Promise<void> {
  const job: Job = await jobs.enqueue("create_watch", { user_id: 7, at: new Date(), big: 7n, deep: { list: [null, true] } });
  const maybe: Job | null = await jobs.enqueueUnique("create_watch");
  const many: Job[] = await jobs.sourced(42).using({ expires: 60 }).enqueueMany("create_watch", [{ user_id: job.id }]);
  await jobs.enqueueIn("create_watch", 300, {});
  await jobs.enqueueAt("create_watch", new Date());
  await jobs.enqueueUniqueIn("create_watch", 300);
  await jobs.enqueueUniqueAt("create_watch", new Date());
  try {
    await jobs.enqueue("create_watch");
  } catch (error) {
    if (error instanceof Unknown) await error.repeat();
  }

  // @ts-expect-error a unique job may be a duplicate
  maybe.id;
  // @ts-expect-error arguments have names
  await jobs.enqueue("create_watch", [7]);
  // @ts-expect-error a function is no JSON
  await jobs.enqueue("create_watch", { f: () => 1 });
  // @ts-expect-error a moment is a Date
  await jobs.enqueueAt("create_watch", 5);
  // @ts-expect-error no such option
  jobs.using({ sorce: 1 });
  // @ts-expect-error not a connection
  new Enqueuer({});
  many.length;
}
