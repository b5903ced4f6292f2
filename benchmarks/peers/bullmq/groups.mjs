// BullMQ, jobs that belong together: flows, whose parents run after their children. All jobs share one queue.
import fs from "node:fs";
import { FlowProducer, Queue, Worker } from "bullmq";

const env = (key, otherwise) => process.env[key] ?? otherwise;
const count = Number(env("BENCH_COUNT", "1000"));
const shape = env("BENCH_PATH", "");
const members = 10;
const chunk = 1000;
const { hostname: host, port } = new URL(env("BENCH_URL"));
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const cpu = () => Object.values(process.cpuUsage()).reduce((a, b) => a + b) / 1e6;
const node = (name, i, children) => ({ name, queueName: "bench", data: { i }, ...(children ? { children } : {}) });
const range = (first, many) => Array.from({ length: many }, (_, k) => node("member", first + k));

function chain() {
  let flow = node("member", 0);
  for (let i = 1; i < count; i++) flow = node("step", i, [flow]);
  return flow;
}

async function send(queue, flows) {
  if (shape === "plain jobs") {
    for (let at = 0; at < count; at += chunk) {
      const some = range(at, Math.min(chunk, count - at));
      await queue.addBulk(some.map(({ name, data }) => ({ name, data })));
    }
  } else if (shape === "a batch") {
    await flows.add(node("ended", count, range(0, count)));
  } else if (shape === "batches of 10") {
    const many = count / members;
    for (let at = 0; at < many; at += 100) {
      const some = Array.from({ length: Math.min(100, many - at) }, (_, k) => at + k);
      await flows.addBulk(some.map((n) => node("ended", count + n, range(n * members, members))));
    }
  } else if (shape === "a chain") {
    await flows.add(chain());
  } else {
    await queue.add("first", { i: count });
  }
}

function work(flows) {
  const ledger = fs.openSync(env("BENCH_LEDGER"), "r+");
  const size = fs.fstatSync(ledger).size / 9;
  const counts = new Uint8Array(size);
  const time = Buffer.alloc(8);
  const record = (i) => {
    time.writeDoubleLE(now());
    fs.writeSync(ledger, time, 0, 8, 8 * i);
    counts[i]++;
    fs.writeSync(ledger, counts, i, 1, 8 * size + i);
  };
  const handler = async (job) => {
    record(job.data.i);
    if (job.name === "first") await flows.add(node("ended", count + 1, range(0, count)));
    if (job.name === "step") await job.getChildrenValues();
    return job.data.i;
  };
  const worker = new Worker("bench", handler, { connection, concurrency: Number(env("BENCH_CONCURRENCY", "10")) });
  process.on("SIGTERM", async () => {
    await worker.close();
    process.exit(0);
  });
}

const flows = new FlowProducer({ connection });
if (process.argv[2] === "work") {
  work(flows);
} else {
  const queue = new Queue("bench", { connection });
  const [first, before] = [now(), cpu()];
  await send(queue, flows);
  console.log(JSON.stringify({ count, first, last: now(), cpu: cpu() - before, sent: [] }));
  await queue.close();
  await flows.close();
}
