// BullMQ under the contract of contract.py. All names share one queue. best: 100 at once, finished jobs removed.
import fs from "node:fs";
import { Queue, Worker } from "bullmq";

const env = (key, otherwise) => process.env[key] ?? otherwise;
const count = Number(env("BENCH_COUNT", "1000"));
const start = Number(env("BENCH_FIRST", "0"));
const names = Array.from({ length: Number(env("BENCH_NAMES", "5")) }, (_, k) => `job${k}`);
const gap = Number(env("BENCH_GAP", "0"));
const offsets = env("BENCH_OFFSETS", "") && new Float64Array(new Uint8Array(fs.readFileSync(env("BENCH_OFFSETS"))).buffer);
const sleep = Number(env("BENCH_SLEEP", "0"));
const best = env("BENCH_CONFIG") === "best";
const { hostname: host, port } = new URL(env("BENCH_URL"));
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const path = env("BENCH_PATH", "");
const due = Number(env("BENCH_DUE", "0"));
const options = () => ({
  ...(best ? { removeOnComplete: true } : {}),
  ...(path === "retry" ? { attempts: 2 } : {}),
  ...(path === "scheduled" ? { delay: Math.max(0, Math.round((due - now()) * 1000)) } : {}),
});
const chunk = 1000;
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const cpu = () => Object.values(process.cpuUsage()).reduce((a, b) => a + b) / 1e6;
const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

async function bulk(queue) {
  const batch = (at) =>
    Array.from({ length: Math.min(chunk, count - at) }, (_, k) => ({
      name: names[(at + k) % names.length], data: { i: at + k }, opts: options(),
    }));
  await queue.addBulk(batch(0));
  const [first, before] = [now(), cpu()];
  for (let at = chunk; at < count; at += chunk) await queue.addBulk(batch(at));
  return [count - Math.min(chunk, count), first, before, []];
}

async function single(queue) {
  const sent = [now()];
  await queue.add(names[start % names.length], { i: start }, options());
  const [first, before] = [now(), cpu()];
  for (let k = 1; k < count; k++) {
    if (gap || offsets) {
      const left = first + (offsets ? offsets[k] : k * gap) - now();
      if (left > 0) await pause(left);
      sent.push(now());
    }
    await queue.add(names[(start + k) % names.length], { i: start + k }, options());
  }
  return [count - 1, first, before, sent];
}

function work() {
  const ledger = fs.openSync(env("BENCH_LEDGER"), "r+");
  const size = fs.fstatSync(ledger).size / 9;
  const counts = new Uint8Array(size);
  const time = Buffer.alloc(8);
  const failed = new Set();
  const children = path === "nested" ? new Queue("bench", { connection }) : null;
  const record = (i) => {
    time.writeDoubleLE(now());
    fs.writeSync(ledger, time, 0, 8, 8 * i);
    counts[i]++;
    fs.writeSync(ledger, counts, i, 1, 8 * size + i);
  };
  const handler = async ({ name, data: { i } }) => {
    if (children && name !== "child") {
      record(count + i);
      await children.add("child", { i }, options());
      return;
    }
    if (path === "retry" && !failed.has(i)) {
      failed.add(i);
      record(count + i);
      throw new Error(`job ${i} fails`);
    }
    record(i);
    if (sleep) await pause(sleep);
    if (path === "raises") throw new Error(`job ${i} fails`);
    return i;
  };
  const concurrency = best ? 100 : Number(env("BENCH_CONCURRENCY", "10"));
  const limiter = env("BENCH_RULES") === "paced" ? { limiter: { max: 500, duration: 1000 } } : {};
  const worker = new Worker("bench", handler, { connection, concurrency, ...limiter });
  process.on("SIGTERM", async () => {
    await worker.close();
    process.exit(0);
  });
}

if (process.argv[2] === "work") {
  work();
} else {
  const queue = new Queue("bench", { connection });
  const [done, first, before, sent] = await (env("BENCH_MODE") === "bulk" ? bulk(queue) : single(queue));
  console.log(JSON.stringify({ count: done, first, last: now(), cpu: cpu() - before, sent }));
  await queue.close();
}
