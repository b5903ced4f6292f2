import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { after, before, beforeEach, describe, test } from "node:test";

import { Redis } from "ioredis";
import { createClient } from "redis";

import { canonical, Duplicate, Enqueuer, Invalid, Unknown } from "../dayjob.js";

const url = process.env.REDIS_URL;
if (!url) throw new Error("REDIS_URL names the server to test with");

const vectors = (file) => JSON.parse(readFileSync(new URL(`../../../vectors/${file}.json`, import.meta.url), "utf8"));
const newNamespace = () => `t${randomBytes(6).toString("hex")}`;

/** `value` with namespace, ids and tagged values put in. */
function filled(value, namespace = "", ids = []) {
  if (typeof value === "string") return value.replaceAll("%ns%", namespace).replace(/%(\d+)%/g, (_, n) => ids[n - 1]);
  if (Array.isArray(value)) return value.map((one) => filled(one, namespace, ids));
  if (value === null || typeof value !== "object") return value;
  if ("$int" in value) return BigInt(value.$int);
  if ("$float" in value) return Number(value.$float);
  if ("$repeat" in value) return value.$repeat[0].repeat(value.$repeat[1]);
  if ("$count" in value) return Array.from({ length: value.$count }, (_, n) => ({ n }));
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [filled(key, namespace, ids), filled(one, namespace, ids)]));
}

describe("canonical JSON", () => {
  for (const row of vectors("canonical").rows) {
    test(row.what, () => assert.equal(canonical(filled(row.value)), row.json));
  }
  for (const row of vectors("canonical").refused) {
    test(`refused: ${row.what}`, () => assert.throws(() => canonical(filled(row.value)), Invalid));
  }
  test("dates are what they say of themselves, undefined is left out", () => {
    assert.equal(canonical({ at: new Date(0), no: undefined }), '{"at":"1970-01-01T00:00:00.000Z"}');
  });
  test("what is no JSON is refused in words", () => {
    assert.throws(() => canonical(new Map()), /no JSON for a Map/);
    assert.throws(() => canonical([() => 1]), /no JSON for a function/);
    assert.throws(() => canonical("\ud800"), /half a surrogate pair/);
  });
});

const clients = {
  redis: async (options = {}) => {
    const client = createClient({ url, ...options });
    client.on("error", () => {});
    await client.connect();
    return client;
  },
  ioredis: async (options = {}) => new Redis(url, options),
};

for (const [library, connect] of Object.entries(clients)) {
  describe(`over ${library}`, () => {
    let redis, look, ns, jobs;
    before(async () => {
      redis = await connect();
      look = new Redis(url);
    });
    after(async () => {
      await redis.quit();
      await look.quit();
    });
    beforeEach(() => {
      ns = newNamespace();
      jobs = new Enqueuer(redis, { namespace: ns });
    });
    const waiting = async () => (await look.lrange(`${ns}:jobs:a`, 0, -1)).reverse().map((payload) => JSON.parse(payload));

    for (const vector of vectors("enqueue").cases) {
      test(vector.what, async () => {
        const run = new Run(redis, look, newNamespace());
        await run.vector(vector);
      });
    }

    test("ids are 128 random bits", async () => {
      const ids = new Set();
      for (let n = 0; n < 5; n++) ids.add((await jobs.enqueue("a")).id);
      assert.equal(ids.size, 5);
      for (const id of ids) assert.match(id, /^[0-9a-f]{32}$/);
    });

    test("the clock is the machine's unless told otherwise", async () => {
      const began = Math.floor(Date.now() / 1000);
      await jobs.enqueue("a");
      const [job] = await waiting();
      assert.ok(began <= job.t && job.t <= Date.now() / 1000);
      assert.equal(job.t, Math.floor(job.at / 1000));
    });

    test("a stored job says when it will run and under which key", async () => {
      const job = await jobs.sourced("acme").enqueueUniqueIn("a", 60, { v: 1 });
      assert.ok(Math.abs(job.runAt - Date.now() - 60_000) < 30_000);
      assert.deepEqual([job.name, job.args, job.source, job.uniqueKey], ["a", { v: 1 }, "acme", `${ns}:unique:a:{"v":1}\n`]);
    });

    test("copies made by using do not change the first", async () => {
      await jobs.sourced(1).using({ expires: 5 }).enqueue("a");
      await jobs.enqueue("a");
      assert.deepEqual((await waiting()).map((job) => "source" in job && "expires" in job), [true, false]);
    });

    test("what no job can have is refused in words", async () => {
      assert.throws(() => jobs.using({ sorce: 1 }), /^Invalid: using has no option sorce: it has id, source, uniqueKey, uniqueFor, expires$/);
      await assert.rejects(jobs.enqueue("a", [1]), /not an object/);
      await assert.rejects(jobs.enqueueAt("a", 5), /give a Date/);
      await assert.rejects(jobs.enqueueAt("a", new Date(1e15)), /^Invalid: .*out of range/);
      await assert.rejects(jobs.enqueueUniqueAt("a", new Date(-1e15)), /^Invalid: .*out of range/);
      await assert.rejects(jobs.enqueueIn("a", 1e11 + 1), /^Invalid: .*from 0 to 100000000000/);
      await assert.rejects(jobs.using({ id: "x" }).enqueueMany("a", [{}]), /one id cannot serve many/);
      assert.deepEqual(await look.keys(`${ns}:*`), []);
    });

    test("the furthest times are stored", async () => {
      await jobs.using({ expires: 1e11 }).enqueue("a");
      await jobs.using({ uniqueFor: 1e11 }).enqueue("a");
      await jobs.enqueueUniqueIn("a", 1e11, { v: 1 });
      await jobs.enqueueAt("a", new Date(1e15 - 1));
      assert.deepEqual([(await waiting()).length, await look.zcard(`${ns}:scheduled`)], [2, 2]);
    });

    test("a plain enqueue of a job that waits is an error that says what to use", async () => {
      const unique = jobs.using({ uniqueKey: "k" });
      await unique.enqueue("a");
      await assert.rejects(unique.enqueue("a"), (error) => error instanceof Duplicate && /use enqueueUnique/.test(error.message));
    });

    test("it works after the scripts were flushed", async () => {
      await look.script("FLUSH");
      await jobs.enqueue("a");
      assert.equal((await waiting()).length, 1);
    });

    test("many calls at once share one enqueuer", async () => {
      await Promise.all(Array.from({ length: 200 }, (_, n) => jobs.enqueue("a", { n })));
      await Promise.all(Array.from({ length: 200 }, (_, n) => jobs.enqueue("a", { n: n + 200 })));
      assert.equal(new Set((await waiting()).map((job) => job.args.n)).size, 400);
    });

    test("a refusal is the library's own error", async () => {
      await look.set(`${ns}:jobs:a`, "x");
      await assert.rejects(jobs.enqueue("a"), (error) => !(error instanceof Unknown) && /^WRONGTYPE/.test(error.message));
    });

    test("a repeat after it was stored stores nothing", async () => {
      const deaf = new Deaf(redis);
      jobs = new Enqueuer(deaf.client, { namespace: ns });
      const lost = await rejection(jobs.enqueue("a", { n: 1 }));
      assert.match(lost.message, /may be stored/);
      deaf.hears = true;
      assert.equal((await lost.repeat()).id, (await waiting())[0].id);
      assert.equal((await lost.repeat()).id, (await lost.repeat()).id);
      await jobs.enqueue("a", { n: 2 });
      assert.deepEqual((await waiting()).map((job) => job.args.n), [1, 2]);
    });

    test("a repeat of many goes on from where it was", async () => {
      const deaf = new Deaf(redis, { hears: true, after: 2 });
      const numbers = Array.from({ length: 1200 }, (_, n) => n);
      const lost = await rejection(new Enqueuer(deaf.client, { namespace: ns }).enqueueMany("a", numbers.map((n) => ({ n }))));
      assert.equal((await waiting()).length, 1000);
      deaf.hears = true;
      deaf.after = undefined;
      assert.deepEqual((await lost.repeat()).map((job) => job.args.n), numbers);
      assert.deepEqual((await waiting()).map((job) => job.args.n), numbers);
    });

    test("a refusal after some were stored is unknown", async () => {
      const spoil = async () => {
        await look.rename(`${ns}:jobs:a`, `${ns}:aside`);
        await look.set(`${ns}:jobs:a`, "x");
      };
      const deaf = new Deaf(redis, { hears: true, spoil });
      const numbers = Array.from({ length: 501 }, (_, n) => n);
      const lost = await rejection(new Enqueuer(deaf.client, { namespace: ns }).enqueueMany("a", numbers.map((n) => ({ n }))));
      assert.match(lost.message, /WRONGTYPE/);
      await look.rename(`${ns}:aside`, `${ns}:jobs:a`);
      assert.equal((await lost.repeat()).length, 501);
      assert.deepEqual((await waiting()).map((job) => job.args.n), numbers);
    });

    test("a repeat of a duplicate is still a duplicate", async () => {
      await jobs.enqueueUnique("a", { v: 1 });
      const deaf = new Deaf(redis);
      const lost = await rejection(new Enqueuer(deaf.client, { namespace: ns }).enqueueUnique("a", { v: 1 }));
      await look.del(`${ns}:unique:a:{"v":1}\n`);
      deaf.hears = true;
      assert.equal(await lost.repeat(), null);
      assert.equal((await waiting()).length, 1);
    });
  });
}

async function rejection(promise) {
  let found;
  await assert.rejects(promise, (error) => (found = error) instanceof Unknown);
  return found;
}

/** A connection whose requests arrive and whose answers are lost, at once or after so many; `spoil` comes after the first. */
class Deaf {
  constructor(redis, { hears = false, after, spoil } = {}) {
    Object.assign(this, { hears, after });
    const names = ["evalSha", "evalsha", "eval"].filter((name) => typeof redis[name] === "function");
    this.client = Object.fromEntries(
      names.map((name) => [
        name,
        async (...words) => {
          const answer = await redis[name](...words);
          await spoil?.();
          spoil = undefined;
          if (this.after !== undefined && --this.after === 0) this.hears = false;
          if (!this.hears) throw new Error("Socket closed unexpectedly");
          return answer;
        },
      ]),
    );
  }
}

const OPTIONS = { unique_key: "uniqueKey", unique_for: "uniqueFor" };
const camel = (text) => text.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());

/** Runs one vector: what is there before, the calls, and what is there after. */
class Run {
  constructor(redis, look, ns) {
    Object.assign(this, { redis, look, ns, jobs: [] });
  }

  async vector(vector) {
    for (const command of filled(vector.given, this.ns)) await this.look.call(...command);
    let now;
    const enqueuer = new Enqueuer(this.redis, { namespace: filled(vector.namespace, this.ns), clock: () => now });
    const answers = [];
    for (const call of vector.calls) {
      now = call.now;
      answers.push(await this.make(enqueuer, filled(call, this.ns)));
    }
    assert.deepEqual(answers, vector.answers);
    const ids = this.jobs.map((job) => job.id);
    for (const [key, wanted] of Object.entries(filled(vector.keys, this.ns, ids))) await this.check(key, wanted);
  }

  async make(enqueuer, call) {
    try {
      if (call.using) {
        enqueuer = enqueuer.using(Object.fromEntries(Object.entries(call.using).map(([key, value]) => [OPTIONS[key] ?? key, value])));
      }
      const time = call.seconds ?? (call.at && new Date(call.at));
      const words = [call.name, time, call.items ?? call.args].filter((word) => word !== undefined);
      const answer = await enqueuer[camel(call.method)](...words);
      if (answer === null) return "duplicate";
      this.jobs.push(...[answer].flat());
      return Array.isArray(answer) ? answer.length : "stored";
    } catch (error) {
      if (error instanceof Invalid) return "invalid";
      if (error instanceof Duplicate) return "duplicate";
      if (error instanceof Unknown || !/^WRONGTYPE/.test(error.message)) throw error;
      return "error";
    }
  }

  async check(key, wanted) {
    const { look } = this;
    if (wanted === null) assert.equal(await look.exists(key), 0, key);
    else if (wanted.list) checkPayloads((await look.lrange(key, 0, -1)).reverse(), wanted.list, await this.now());
    else if ("length" in wanted) assert.equal(await look.llen(key), wanted.length);
    else if (wanted.set) assert.deepEqual((await look.smembers(key)).sort(), wanted.set.sort());
    else if (wanted.has) for (const one of wanted.has) assert.equal(await look.sismember(key, one), 1);
    else if (wanted.zset) await this.checkZset(await look.zrange(key, 0, -1, "WITHSCORES"), wanted.zset);
    else {
      assert.equal(await look.get(key), wanted.string);
      if (wanted.ttl) assertBetween(wanted.ttl - 60, await look.ttl(key), wanted.ttl);
    }
  }

  /** Redis time, in seconds. */
  async now() {
    const [seconds, micros] = await this.look.time();
    return Number(seconds) + Number(micros) / 1e6;
  }

  async checkZset(found, wanted) {
    const now = await this.now();
    assert.equal(found.length, wanted.length * 2);
    wanted.forEach(([member, score], n) => {
      checkPayloads([found[n * 2]], [member], now);
      const foundScore = Number(found[n * 2 + 1]);
      if (typeof score === "object") assertBetween(now - 60, foundScore - score.in, now);
      else assert.equal(foundScore, score);
    });
  }
}

const EXPIRY = /"expires":(\d+),"at":(\d+)}$/;

/** Payloads are equal but for the moment they expire: Redis time at the call, plus what the vector has after its `at`. */
function checkPayloads(found, wanted, now) {
  assert.equal(found.length, wanted.length);
  wanted.forEach((payload, n) => {
    const [, expires, at] = payload.match(EXPIRY) ?? [];
    if (expires === undefined) return assert.equal(found[n], payload);
    const stored = Number(found[n].match(EXPIRY)[1]) - (expires - at);
    assertBetween((now - 60) * 1000, stored, now * 1000);
    assert.equal(found[n].replace(/\d+(?=,"at":\d+}$)/, expires), payload);
  });
}

function assertBetween(low, value, high) {
  assert.ok(low <= value && value <= high, `${value} is not from ${low} to ${high}`);
}
