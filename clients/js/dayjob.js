/** Enqueues jobs for dayjob workers. See docs/wire.md of dayjob for what is written where. */

import { createHash, randomBytes } from "node:crypto";

const MOST_JOBS = 500;
const MOST_BYTES = 1 << 20;
// The longest time in seconds, and the furthest moment in milliseconds, that a job can have.
const MOST_SECONDS = 1e11;
const MOST_MILLISECONDS = 1e15;
const NAME = /^[^\s:/|{}\p{Cc}\p{Cs}]{1,200}$/u;
// What Redis says only where nothing was stored before; any other error may be the answer to a resend.
const REFUSALS = /^(WRONGTYPE|NOPERM|NOAUTH|WRONGPASS)\b/;

/** A name, an argument or an option that no job can have. Nothing was sent. */
export class Invalid extends TypeError {
  name = "Invalid";
}

/** A job like it already waits; enqueueUnique and its kin answer null for that. */
export class Duplicate extends Error {
  name = "Duplicate";
}

/** Redis gave no answer, or none that settles it: the jobs may be stored, in part or whole. */
export class Unknown extends Error {
  name = "Unknown";
  #again;

  constructor(message, cause, again) {
    super(message, { cause });
    this.#again = again;
  }

  /** Send the same request again, and answer for the whole call. It never stores a job twice; safe for an hour. */
  repeat() {
    return this.#again();
  }
}

/** JSON as Go writes it: sorted keys, shortest numbers, HTML characters escaped. Unique keys are made of it. */
export function canonical(value) {
  switch (typeof value) {
    case "string":
      return quoted(value);
    case "number":
      return number(value);
    case "bigint":
    case "boolean":
      return String(value);
    case "object":
      break;
    default:
      throw new Invalid(`there is no JSON for a ${typeof value}`);
  }
  if (value === null) return "null";
  if (typeof value.toJSON === "function") return canonical(value.toJSON());
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null) {
    throw new Invalid(`there is no JSON for a ${value.constructor.name}: give plain objects and arrays`);
  }
  // By bytes: the order of UTF-16 units is another one.
  const keys = Object.keys(value).filter((key) => value[key] !== undefined);
  keys.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return `{${keys.map((key) => `${quoted(key)}:${canonical(value[key])}`).join(",")}}`;
}

function quoted(text) {
  if (/\p{Cs}/u.test(text)) throw new Invalid(`half a surrogate pair is not text: ${JSON.stringify(text)}`);
  return JSON.stringify(text).replace(/[<>&\u2028\u2029]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function number(value) {
  if (!Number.isFinite(value)) throw new Invalid(`${value} is not JSON`);
  return Object.is(value, -0) ? "-0" : String(value);
}

/** Puts jobs in. May be shared by everything that shares its connection. */
export class Enqueuer {
  #redis;
  #prefix;
  #clock;
  #options;
  #slots;

  /** `redis` is a connected client of the package `redis` or `ioredis`; `clock` says the time in milliseconds. */
  constructor(redis, { namespace = "dayjob", clock = Date.now } = {}) {
    this.#redis = redis;
    this.#prefix = namespace === "" || namespace.endsWith(":") ? namespace : `${namespace}:`;
    this.#clock = clock;
    this.#options = {};
    // Slots that no call uses. Under its slot and number Redis knows a request again.
    this.#slots = [];
  }

  /** Put a job in its queue. */
  async enqueue(name, args = {}) {
    return this.#one(name, args);
  }

  /** Put a job in, to run after `seconds`. */
  async enqueueIn(name, seconds, args = {}) {
    return this.#one(name, args, inSeconds(seconds));
  }

  /** Put a job in, to run at `date`. */
  async enqueueAt(name, date, args = {}) {
    return this.#one(name, args, atDate(date));
  }

  /** Put a job in unless one like it waits; null when one does. */
  async enqueueUnique(name, args = {}) {
    return this.#one(name, args, NOW, true);
  }

  /** As enqueueUnique, to run after `seconds`. */
  async enqueueUniqueIn(name, seconds, args = {}) {
    return this.#one(name, args, inSeconds(seconds), true);
  }

  /** As enqueueUnique, to run at `date`. */
  async enqueueUniqueAt(name, date, args = {}) {
    return this.#one(name, args, atDate(date), true);
  }

  /** Put many jobs of one name in, a few hundred to a round trip. All are checked before any is sent. */
  async enqueueMany(name, list) {
    if (this.#options.id !== undefined) throw new Invalid("one id cannot serve many jobs: drop using({ id })");
    const drafts = Array.from(list, (args) => this.#draft(name, args, this.#isUnique));
    return this.#deliver(name, batches(drafts), NOW, (jobs) => jobs.filter((job) => job !== null));
  }

  /** An enqueuer whose jobs are for `source`: a tenant, a customer. */
  sourced(source) {
    return this.using({ source });
  }

  /** An enqueuer like this one whose jobs get these options: id, source, uniqueKey, uniqueFor, expires. */
  using(options) {
    for (const [key, value] of Object.entries(options)) checkOption(key, value);
    const twin = new Enqueuer(this.#redis, { clock: this.#clock });
    twin.#prefix = this.#prefix;
    twin.#slots = this.#slots;
    twin.#options = { ...this.#options, ...options };
    return twin;
  }

  get #isUnique() {
    return this.#options.uniqueKey !== undefined || this.#options.uniqueFor !== undefined;
  }

  #one(name, args, time = NOW, unique = false) {
    const draft = this.#draft(name, args, unique || this.#isUnique);
    return this.#deliver(name, [[draft]], time, ([job]) => {
      if (job === null && !unique) throw new Duplicate(`${name}: a job like it already waits; use enqueueUnique, which answers null for that`);
      return job;
    });
  }

  #draft(name, args, unique) {
    if (typeof name !== "string" || !NAME.test(name)) {
      throw new Invalid(`job name ${JSON.stringify(name)}: use 1 to 200 characters without spaces, : / | { }`);
    }
    if (args === null || typeof args !== "object" || Array.isArray(args)) {
      throw new Invalid(`the arguments of ${name} are not an object`);
    }
    const json = canonical(args);
    const { id = randomBytes(16).toString("hex"), source } = this.#options;
    const job = { name, id, args };
    if (source != null) job.source = source;
    if (unique) job.uniqueKey = this.#uniqueKey(name, json);
    const payload = this.#write(job, json);
    const size = Buffer.byteLength(payload);
    if (size > MOST_BYTES) throw new Invalid(`${name}: the job has ${size} bytes, the limit is ${MOST_BYTES}`);
    return { job, payload, size };
  }

  #write(job, json) {
    const now = Math.floor(this.#clock());
    let text = `{"name":${quoted(job.name)},"id":${quoted(job.id)},"t":${Math.floor(now / 1000)},"args":${json}`;
    if (job.uniqueKey !== undefined && this.#options.uniqueFor === undefined) {
      text += `,"unique":true,"unique_key":${quoted(job.uniqueKey)}`;
    }
    if (job.source !== undefined) text += `,"source":${canonical(job.source)}`;
    // The script replaces this number, so that the job expires on the Redis clock. It looks for it just before "at".
    if (this.#options.expires !== undefined) text += `,"expires":${now + milliseconds(this.#options.expires)}`;
    return `${text},"at":${now}}`;
  }

  #uniqueKey(name, json) {
    const given = this.#options.uniqueKey;
    const rest = typeof given === "string" ? given : `${given === undefined ? json : canonical(given)}\n`;
    return `${this.#prefix}unique:${name}:${rest}`;
  }

  /** Send the batches in order. A slot whose request failed is not given back: its number belongs to the repeat. */
  async #deliver(name, batches, time, read) {
    const slot = this.#slots.pop() ?? { id: randomBytes(16).toString("hex"), number: 0 };
    const requests = batches.map((drafts) => ({ drafts, number: ++slot.number }));
    const jobs = [];
    const send = async (first) => {
      try {
        while (requests.length > 0) {
          jobs.push(...(await this.#put(name, requests[0], time, slot.id)));
          requests.shift();
        }
      } catch (error) {
        if (first && jobs.length === 0 && REFUSALS.test(error.message)) throw error;
        const message = `${name}: ${error.message}; it may be stored, in part or whole (repeat() is safe)`;
        throw new Unknown(message, error, () => send(false));
      }
      return read(jobs);
    };
    const answer = await send(true);
    this.#slots.push(slot);
    return answer;
  }

  async #put(name, { drafts, number }, [mode, amount], slotId) {
    const { job } = drafts[0];
    const now = mode === "now";
    const guard = `${this.#prefix}sent:${slotId}`;
    const keys = [
      guard,
      this.#prefix + (now ? `jobs:${name}` : "scheduled"),
      `${this.#prefix}known_jobs`,
      this.#prefix + (now ? `bell:${name}` : "due"),
      job.uniqueKey ?? guard,
      this.#options.id === undefined ? guard : `${this.#prefix}id:${job.id}`,
    ];
    const times = [milliseconds(this.#options.uniqueFor), milliseconds(this.#options.expires)];
    const payloads = drafts.map((draft) => draft.payload);
    const [answer, due] = await this.#evaluate(keys, [number, name, mode, amount, job.id, ...times, ...payloads].map(String));
    if (String(answer) === "duplicate") return [null];
    return drafts.map((draft) => (now ? draft.job : { ...draft.job, runAt: new Date(Number(due)) }));
  }

  async #evaluate(keys, argv) {
    try {
      return await this.#call("evalsha", SHA, keys, argv);
    } catch (error) {
      if (!error.message.startsWith("NOSCRIPT")) throw error;
      return this.#call("eval", PUT, keys, argv);
    }
  }

  #call(command, script, keys, argv) {
    // The package `redis` spells it evalSha and takes an object; `ioredis` takes words.
    if (typeof this.#redis.evalSha === "function") {
      return this.#redis[command === "eval" ? "eval" : "evalSha"](script, { keys, arguments: argv });
    }
    return this.#redis[command](script, keys.length, ...keys, ...argv);
  }
}

const NOW = ["now", 0];

/** An option that is a time, at least a millisecond; 0 where it was not given. */
function milliseconds(seconds) {
  return seconds === undefined ? 0 : Math.max(1, Math.floor(seconds * 1000));
}

function inSeconds(seconds) {
  if (typeof seconds !== "number" || !(seconds >= 0 && seconds <= MOST_SECONDS)) {
    throw new Invalid(`${seconds}: give seconds as a number, from 0 to ${MOST_SECONDS}`);
  }
  return ["in", Math.round(seconds * 1000)];
}

function atDate(date) {
  if (!(date instanceof Date) || Number.isNaN(date.getTime())) throw new Invalid(`${date}: give a Date`);
  if (Math.abs(date.getTime()) >= MOST_MILLISECONDS) throw new Invalid(`${date.toISOString()}: the time is out of range`);
  return ["at", date.getTime()];
}

/** Requests of bounded size; a job with a unique key has one of its own. */
function batches(drafts) {
  const found = [];
  let bytes = MOST_BYTES;
  for (const draft of drafts) {
    bytes += draft.size;
    if (bytes > MOST_BYTES || draft.job.uniqueKey !== undefined || found.at(-1).length >= MOST_JOBS) {
      found.push([]);
      bytes = draft.size;
    }
    found.at(-1).push(draft);
  }
  return found;
}

const CHECKS = {
  id: (value) => typeof value === "string" && /^[^\p{Cc}\p{Cs}]{1,200}$/u.test(value),
  source: (value) => value === null || typeof value === "string" || typeof value === "bigint" || Number.isSafeInteger(value),
  uniqueKey: (value) => (typeof value === "string" ? value !== "" : typeof value === "object" && value !== null),
  uniqueFor: (value) => typeof value === "number" && value > 0 && value <= MOST_SECONDS,
  expires: (value) => typeof value === "number" && value > 0 && value <= MOST_SECONDS,
};

function checkOption(key, value) {
  if (!Object.hasOwn(CHECKS, key)) throw new Invalid(`using has no option ${key}: it has ${Object.keys(CHECKS).join(", ")}`);
  if (value !== undefined && !CHECKS[key](value)) throw new Invalid(`using({ ${key}: ${String(value)} }): see the README for what it takes`);
}

// The script that stores jobs: clients/put.lua, word for word.
const PUT = String.raw`#!lua
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
`;
const SHA = createHash("sha1").update(PUT).digest("hex");
