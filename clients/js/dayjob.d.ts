/** A JSON value. A bigint is written with all its digits; `undefined` in an object is left out. */
export type Json = string | number | bigint | boolean | null | Json[] | { [key: string]: Json | undefined } | { toJSON(): unknown };

/** The arguments of a job, by name. */
export type Args = { [key: string]: Json | undefined };

/** A job that was stored. */
export interface Job {
  name: string;
  /** 32 random hex digits, or the id that was given to `using`. */
  id: string;
  args: Args;
  source?: string | number | bigint;
  uniqueKey?: string;
  /** When it will run, for one that waits for its time. */
  runAt?: Date;
}

/** What only the one who enqueues knows. */
export interface Options {
  /** 1 to 200 characters. The same id again within a day stores nothing, so that a repeat is safe. */
  id?: string;
  /** Who the job is for: a tenant, a customer. */
  source?: string | number | bigint | null;
  /** What makes two jobs alike, in place of their arguments. Makes the job unique. */
  uniqueKey?: string | Args;
  /** Seconds that the key keeps others out, whatever becomes of the job. Makes the job unique. */
  uniqueFor?: number;
  /** Seconds on the Redis clock, counted from the moment the job is stored. A job that has not started by then is discarded. */
  expires?: number;
}

/** A client of the package `redis` (4 or later), connected; or a cluster of it. */
export interface NodeRedis {
  evalSha(sha: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
  eval(script: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
}

/** A client of the package `ioredis`; or a cluster of it. */
export interface IoRedis {
  evalsha(sha: string, count: number, ...words: string[]): Promise<unknown>;
  eval(script: string, count: number, ...words: string[]): Promise<unknown>;
}

/** A name, an argument or an option that no job can have. Nothing was sent. */
export class Invalid extends TypeError {}

/** A job like it already waits; enqueueUnique and its kin answer null for that. */
export class Duplicate extends Error {}

/** Redis gave no answer, or none that settles it: the jobs may be stored, in part or whole. */
export class Unknown extends Error {
  /** Send the same request again, and answer for the whole call. It never stores a job twice; safe for an hour. */
  repeat(): Promise<Job | null | Job[]>;
}

/** Puts jobs in. May be shared by everything that shares its connection. */
export class Enqueuer {
  constructor(redis: NodeRedis | IoRedis, options?: { namespace?: string; clock?: () => number });

  /** Put a job in its queue. */
  enqueue(name: string, args?: Args): Promise<Job>;
  /** Put a job in, to run after `seconds`. */
  enqueueIn(name: string, seconds: number, args?: Args): Promise<Job>;
  /** Put a job in, to run at `date`. */
  enqueueAt(name: string, date: Date, args?: Args): Promise<Job>;
  /** Put a job in unless one like it waits; null when one does. */
  enqueueUnique(name: string, args?: Args): Promise<Job | null>;
  /** As enqueueUnique, to run after `seconds`. */
  enqueueUniqueIn(name: string, seconds: number, args?: Args): Promise<Job | null>;
  /** As enqueueUnique, to run at `date`. */
  enqueueUniqueAt(name: string, date: Date, args?: Args): Promise<Job | null>;
  /** Put many jobs of one name in, a few hundred to a round trip. All are checked before any is sent. */
  enqueueMany(name: string, list: Iterable<Args>): Promise<Job[]>;

  /** An enqueuer whose jobs are for `source`. */
  sourced(source: string | number | bigint | null): Enqueuer;
  /** An enqueuer like this one whose jobs get these options. */
  using(options: Options): Enqueuer;
}

/** JSON as Go writes it: sorted keys, shortest numbers, HTML characters escaped. Unique keys are made of it. */
export function canonical(value: Json): string;
