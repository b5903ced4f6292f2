"""All Redis keys. No other module builds a key. Each docstring gives the type, content, expiry and writers of its key.

The public keys are those of gocraft/work, so that programs in other languages can share a namespace. The private keys
belong to dayjob.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dayjob.names import check_namespace


class QueueKeys(NamedTuple):
    """The keys of one job name that scripts pass together."""

    queue: str
    paused: str
    held: str
    bell: str


@dataclass(frozen=True)
class Keys:
    """The keys of one namespace."""

    namespace: str
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        """Apply gocraft's prefix rule: `w1` and `w1:` are the same namespace, and "" has no prefix. Raises BadOption."""
        check_namespace(self.namespace)
        bare = self.namespace == "" or self.namespace.endswith(":")
        object.__setattr__(self, "prefix", self.namespace if bare else self.namespace + ":")

    # Public keys: the wire contract.

    def queue(self, name: str) -> str:
        """List of payloads. Producers LPUSH, exchange takes from the right. No expiry. `<name>|<key>` is a partition."""
        return f"{self.prefix}jobs:{name}" if "|" not in name else self.partition(*name.split("|", 1))

    def paused(self, name: str) -> str:
        """String. While it exists, with any value, pools do not fetch from the queue. Written by operators."""
        return f"{self.prefix}jobs:{name}:paused"

    @property
    def known_jobs(self) -> str:
        """Set of job names that were enqueued or registered. Written by enqueues, requeues and pools at start."""
        return f"{self.prefix}known_jobs"

    @property
    def scheduled(self) -> str:
        """Sorted set: payload, scored by the second it is due. Written by enqueues and snoozes."""
        return f"{self.prefix}scheduled"

    @property
    def retry(self) -> str:
        """Sorted set: payload, scored by the second of its next attempt. Written by exchange and sweep."""
        return f"{self.prefix}retry"

    @property
    def dead(self) -> str:
        """Sorted set: payload, scored by the second the job died. Written by exchange and sweep, capped by the leader."""
        return f"{self.prefix}dead"

    def unique(self, name: str, rest: str) -> str:
        """String: id of the job that holds the key. Expires 30 days after that job is due."""
        return f"{self.prefix}unique:{name}:{rest}"

    @property
    def unique_prefix(self) -> str:
        """The prefix of every unique key. dayjob ignores a unique key in a payload that does not start with it."""
        return f"{self.prefix}unique:"

    # Private keys.

    @property
    def pools(self) -> str:
        """Sorted set: pool id, scored by the end of its lease in Redis milliseconds. Written by join, beat, exchange."""
        return f"{self.prefix}pools"

    @property
    def condemned(self) -> str:
        """Sorted set: id of a dead pool whose attempts are being swept, scored by the time it was condemned. Written by condemn and leave."""
        return f"{self.prefix}condemned"

    @property
    def watch(self) -> str:
        """Hash, Redis milliseconds: `last` is when condemn last ran; until `quiet`, it ignores expired leases. Also `run`: the run id of the server that check_server saw last."""
        return f"{self.prefix}watch"

    def pool(self, pool_id: str) -> str:
        """String: the status of the pool, JSON. Written by status, expires after an hour."""
        return f"{self.prefix}pool:{pool_id}"

    def state(self, pool_id: str) -> str:
        """Hash: `last` request number; token of the `suspect` that is running; `cause` and `culprit` (token) of a kill by the parent; `cancel:<token>` (1 or kill) and `wish:<quiet, resume, stop or stacks>`, requests of operators."""
        return f"{self.prefix}pool:{pool_id}:state"

    def held(self, pool_id: str) -> str:
        """Hash: token to payload of the attempts that this pool holds. A token is `<number>:<job name>`, or `<number>:<job name>|<key>`."""
        return f"{self.prefix}pool:{pool_id}:held"

    def stacks(self, pool_id: str) -> str:
        """List of one element: the stack traces of the pool's busy workers, JSON. Written when an operator asks for them, expires after a minute."""
        return f"{self.prefix}pool:{pool_id}:stacks"

    @property
    def limits(self) -> str:
        """Hash: job name to its concurrency limit; `<name>|by` to who set it: `code`, `operator`, or `lifted` if an operator removed it; `<name>|counting` while attempts are counted for a new limit. Meanwhile the limit of a name that had none is 1e6. A name with keys and no limit of its own has `-`. Behind the number, a name with rate limits has its rule: what a job costs, the names of its limits (with `|` behind those that count by key), and its key. `limit:<limit>` is the definition of a rate limit: `rate <n> <microseconds> <burst>`, `window <n> <microseconds>` or `lifted`; `limit:<limit>|by` is who set it, `limit:<limit>|code` what the code declares."""
        return f"{self.prefix}limits"

    def rate(self, limit: str) -> str:
        """String, Redis microseconds: the epoch, which is when the state was created; its last charge, counted from the epoch; the sum of its charges since; by how much the bucket is full later than the epoch plus that sum, negative if earlier; for one key also the interval of a unit. Expires a minute after it is full. Written by exchange."""
        return f"{self.prefix}rate:{limit}"

    def window(self, limit: str) -> str:
        """Sorted set: `<pool>/<token>` of the attempts that a window limit counts, scored by the Redis microsecond of their start. Expires a minute after the window. Written by exchange."""
        return f"{self.prefix}window:{limit}"

    def hold(self, limit: str) -> str:
        """String: the Redis millisecond until which no job under a rate limit may start. Expires then. Written by exchange (Throttled) and by operators."""
        return f"{self.prefix}hold:{limit}"

    @property
    def parked(self) -> str:
        """Sorted set: name of a queue that waits for a rate limit, scored by the second when its next job may start. The leader then rings its bell. Written by exchange."""
        return f"{self.prefix}parked"

    def held_of(self, name: str) -> str:
        """Set of `<pool>/<token>`: the attempts that count against the limit of a name in `limits`, or of one key, `<name>|<key>`."""
        return f"{self.prefix}held:{name}"

    def partition(self, name: str, key: str) -> str:
        """List of payloads: the waiting jobs of a name with one key. It is used like a queue. Written by enqueue_by_key, admit, sort_jobs, exchange, sweep."""
        return f"{self.prefix}partition:{name}|{key}"

    def turns(self, name: str) -> str:
        """Sorted set: keys of a name that have jobs to fetch, scored by virtual time: how many jobs, or seconds of work, each got, divided by its weight. Written by all scripts that put jobs into partitions, and by exchange."""
        return f"{self.prefix}turns:{name}"

    def blocked(self, name: str) -> str:
        """Sorted set: keys of a name whose jobs must wait, scored by the Redis millisecond when they are tried again; inf until a place is free or the key is resumed. Written by exchange."""
        return f"{self.prefix}blocked:{name}"

    def debts(self, name: str) -> str:
        """Sorted set: keys of a name that left `turns` ahead of others, scored by their virtual time. Dropped when the others have caught up. Written by exchange."""
        return f"{self.prefix}debts:{name}"

    def key_settings(self, name: str) -> str:
        """Hash: key of a name to its weight, its own concurrency limit and 1 if it is paused; `-` for what is not set. Written by operators."""
        return f"{self.prefix}key_settings:{name}"

    def overrides(self, limit: str) -> str:
        """Hash: key to the definition of a rate limit for this key, as in `limits`. Written by operators."""
        return f"{self.prefix}overrides:{limit}"

    def bell(self, name: str) -> str:
        """Sorted set with one member while there are jobs to fetch. One waiting pool pops it."""
        return f"{self.prefix}bell:{name}"

    @property
    def due(self) -> str:
        """Sorted set with one member when a job was added that is due before all others. The leader pops it."""
        return f"{self.prefix}due"

    @property
    def leader(self) -> str:
        """String: id of the leader, the pool that does the chores. Expires after three seconds."""
        return f"{self.prefix}leader"

    @property
    def periodic(self) -> str:
        """Hash: schedule to its last processed tick, or the time it was first registered; `<schedule>|ticked`: the last tick that enqueued a job, empty before the first; `<schedule>|off` while paused: when and by whom; `<schedule>|is`: its description; `<schedule>|run`: first and last tick since the last gap; `<schedule>|ahead`: such pairs that were enqueued while the clock was ahead."""
        return f"{self.prefix}periodic"

    @property
    def broken(self) -> str:
        """List of payloads that could not be parsed: for each a JSON header, a newline, and the original bytes."""
        return f"{self.prefix}broken"

    def staged(self, pool_id: str, token: str, number: int) -> str:
        """List: payloads that an attempt of an atomic job enqueued, until it completes. Expires after an hour unless it does. Written by exchange, release."""
        return f"{self.prefix}staged:{pool_id}/{token}:{number}"

    @property
    def released(self) -> str:
        """Sorted set: staged list of an atomic job that completed, JSON, scored by the Redis millisecond of its completion. The leader moves its jobs to their queues. Written by exchange, release."""
        return f"{self.prefix}released"

    def batch(self, batch_id: str) -> str:
        """Hash: a batch: `total` members, `created`, `closed`, `cancelled` and `ended_at` (Redis milliseconds), `description`, `above` (its place in the batches above it), `nested:<number>` (the id of a batch that is that member), the callbacks `success`, `complete` and `dead` (payloads) and when each was `sent:`. Expires after 187 days, a week after its success. Written by add_members, change_batch and all scripts that end jobs."""
        return f"{self.prefix}batch:{batch_id}"

    def batch_ended(self, batch_id: str) -> str:
        """String, a bitmap: the members of a batch that have ended for good, dead ones included. Written like the batch."""
        return f"{self.prefix}batch:{batch_id}:ended"

    def batch_dead(self, batch_id: str) -> str:
        """String, a bitmap: the members of a batch that are dead, unreadable, or were dropped after their last failure. Written like the batch."""
        return f"{self.prefix}batch:{batch_id}:dead"

    def batch_failed(self, batch_id: str) -> str:
        """String, a bitmap: the members of a batch whose last attempt failed and that run again. Written like the batch."""
        return f"{self.prefix}batch:{batch_id}:failed"

    @property
    def batches(self) -> str:
        """Sorted set: batch id, scored by the Redis millisecond of its creation. Written by add_members, which drops those older than 187 days."""
        return f"{self.prefix}batches"

    @property
    def cancelled_batches(self) -> str:
        """Sorted set: id of a batch that was cancelled, or `<workflow id>/<number>` of a node, scored by the Redis millisecond at which it was cancelled. Pools end these jobs. Written by change_batch, change_workflow, which drop those older than a week."""
        return f"{self.prefix}cancelled_batches"

    def workflow(self, workflow_id: str) -> str:
        """Hash: a workflow: its `name`, `total` nodes, and when it was `created`, `cancelled` and `ended_at` (Redis milliseconds). It and its other keys expire after 187 days, a week after its success. Written by start_workflow, change_workflow and all scripts that end jobs."""
        return f"{self.prefix}workflow:{workflow_id}"

    def workflow_states(self, workflow_id: str) -> str:
        """String: one letter for each node of a workflow: w waits for other nodes, r released as a job, f failed and runs again, c completed, d dead, n dead and the nodes that need it continue, k dead and the nodes that need it are skipped, s skipped, x cancelled or deleted. Written like the workflow."""
        return f"{self.prefix}workflow:{workflow_id}:states"

    def workflow_results(self, workflow_id: str) -> str:
        """Hash: number of a completed node to what its handler returned, JSON. Written by exchange, change_workflow."""
        return f"{self.prefix}workflow:{workflow_id}:results"

    def workflow_nodes(self, workflow_id: str) -> str:
        """Hash: number of a node to its payload; `<number>:in`, the nodes that it needs, with `!` before those whose failure it waits for; `<number>:out`, the nodes that need it; `<number>:on`, what its failure does: c continue, s skip; `<number>:from` and `<number>:to`, when it was released and ended (Redis milliseconds). Written like the workflow."""
        return f"{self.prefix}workflow:{workflow_id}:nodes"

    @property
    def workflows(self) -> str:
        """Sorted set: workflow id, scored by the Redis millisecond of its start. Written by start_workflow, which drops those older than 187 days."""
        return f"{self.prefix}workflows"

    @property
    def bin(self) -> str:
        """Sorted set: the parts of deletions that can be undone, JSON, scored by the Redis millisecond at which each expires. Written by to_bin, undo."""
        return f"{self.prefix}bin"

    def bin_part(self, deletion: str, part: int) -> str:
        """List: deleted jobs, for each a JSON header, a newline, the value of its unique key, and the original bytes. Expires after ten minutes."""
        return f"{self.prefix}bin:{deletion}:{part}"

    @property
    def never(self) -> str:
        """Never written. An action of an operator that checks something again after a while waits on it, so that Redis measures the time."""
        return f"{self.prefix}never"

    def sent(self, slot: str) -> str:
        """String: the number of the last request of one enqueuer connection, and its answer. Expires after an hour."""
        return f"{self.prefix}sent:{slot}"

    def job_id(self, job_id: str) -> str:
        """String: the first job of an id that a caller chose, so that a repeat is not stored again. Expires after a day."""
        return f"{self.prefix}id:{job_id}"

    @property
    def totals(self) -> str:
        """Hash: `<counter>:<job name>` to its exact total. Written by all scripts that move jobs."""
        return f"{self.prefix}stats:totals"

    def minute(self, minute: int) -> str:
        """Hash: failures, queue sizes, ages and histograms by job name, and measures of the server and the fleet, for one minute since the epoch. Expires after 73 hours, or 4 once its hour is rolled up. Written by exchange, sample, the leader."""
        return f"{self.prefix}stats:minute:{minute}"

    def counts(self, span: int, minute: int) -> str:
        """String: the counts of the 1, 15, 60 or 360 minutes from this one on, JSON. Expires after 2 to 79 hours. Written by the leader."""
        return f"{self.prefix}stats:counts:{span}:{minute}"

    def times(self, span: int, minute: int) -> str:
        """String: the histograms of the 1, 15, 60 or 360 minutes from this one on, JSON. Expires after 2 to 79 hours. Written by the leader."""
        return f"{self.prefix}stats:times:{span}:{minute}"

    @property
    def done(self) -> str:
        """Sorted set: completed jobs that are kept, scored by the second at which they are dropped. Capped by the leader."""
        return f"{self.prefix}done"

    def result(self, job_id: str) -> str:
        """String: the result of a completed job, or the error of a dead one, JSON. Expires after the job type's `keep`. While callers wait for it: `waiting` and their mailboxes, which expire after a minute. Written by exchange, sweep, move, look_for_result."""
        return f"{self.prefix}result:{job_id}"

    def stream(self, job_id: str) -> str:
        """Stream: what the last attempt of a job emitted, and how it ended: `a`, the number of the attempt; `v`, values as JSON, one per line; `s`, the same without redacted values; `n` and `p`, the name, pool and token, in the first entry of an attempt; `e` and `w`, how it ended and why, in its last. At most 50,000 values and 1 MiB. Expires an hour after the end of the job, or after the job type's `keep` if that is longer; a day after the last entry of a job that has not ended. Written by exchange."""
        return f"{self.prefix}stream:{job_id}"

    def mailbox(self, mailbox_id: str) -> str:
        """A channel, not a key: the results that one process waits for are published here."""
        return f"{self.prefix}mailbox:{mailbox_id}"

    @property
    def outbox(self) -> str:
        """String: how many rows of the outbox a relay found unsent, and the age of the oldest, JSON. Expires a day after the last report. Written by the relay."""
        return f"{self.prefix}outbox"

    def task(self, job_id: str) -> str:
        """String: the record of a task of Django: its status, times, errors and result, JSON. Expires. Written by `dayjob.django.tasks`."""
        return f"{self.prefix}task:{job_id}"

    def history(self, name: str) -> str:
        """Stream: records of completed attempts of a name, JSON. Capped by exchange, expires after the job type's `history_age`. Written by exchange."""
        return f"{self.prefix}history:{name}"

    def history_other(self, name: str) -> str:
        """Stream: records of the attempts of a name that ended in another way, JSON. Capped by exchange, expires after the job type's `history_age`. Written by exchange, sweep."""
        return f"{self.prefix}history:{name}:other"

    def logs(self, job_id: str) -> str:
        """Hash: number of an attempt to the last lines that it logged, of the last ten attempts of a job type with `keep_logs`. Expires after the job type's `history_age`. Written by exchange."""
        return f"{self.prefix}logs:{job_id}"

    @property
    def job_types(self) -> str:
        """Hash: job name to the description that its pools announced, JSON; `<name>|at` to when. Dropped 30 days after the last announcement, or after `dead_age` plus two days if that is longer."""
        return f"{self.prefix}job_types"

    @property
    def groups(self) -> str:
        """Hash: notes of operators on groups of failures: `<digest of job name and error>|note` and `|until`, JSON. Written by operators, who can keep 1,000."""
        return f"{self.prefix}failure_groups"

    @property
    def audit(self) -> str:
        """List: actions of operators, newest first: Redis milliseconds, a space and JSON. Written by log_action, which keeps 1,000 entries."""
        return f"{self.prefix}audit"

    @property
    def members(self) -> str:
        """Hash: pool id to what the pool published about itself when it joined (host, pid, tag, versions), JSON. Written by join, removed together with the id in `pools`."""
        return f"{self.prefix}members"

    @property
    def versions(self) -> str:
        """Hash: job name to the tag of the pool that last started with it, which is the version of the program. Written by announce."""
        return f"{self.prefix}versions"

    def events(self, kind: str) -> str:
        """List: events of one kind, newest first: Redis milliseconds, a space and JSON. Written by the script that causes the event, which keeps 500 entries. Expires 90 days after the last event."""
        return f"{self.prefix}events:{kind}"

    @property
    def starved(self) -> str:
        """Hash: name of a queue whose oldest job waits too long, to the second at which watch_queues noticed it. Written by watch_queues."""
        return f"{self.prefix}starved"

    @property
    def first_seen(self) -> str:
        """Hash: problems that nothing else records (`eviction`, `memory_only`, or a key of a wrong type), to the second at which the leader noticed it. Written by record_first_seen."""
        return f"{self.prefix}first_seen"

    def ticks(self, schedule: str) -> str:
        """List: ticks of a schedule, newest first, at most one entry per hour for those that fired in a row: Redis milliseconds, a space and JSON. Written by tick, which keeps 100 entries. Expires 90 days after the last entry."""
        return f"{self.prefix}ticks:{schedule}"

    @property
    def watcher(self) -> str:
        """String: id of the watcher that posts alerts. Expires after 20 seconds. Written by lead_watch."""
        return f"{self.prefix}watcher"

    @property
    def alerts(self) -> str:
        """Hash: alert to what was posted about it, JSON; `|begun` once a watcher has compared the alerts for the first time. Written by record_alert."""
        return f"{self.prefix}alerts"

    def undelivered(self, receiver: str) -> str:
        """List: alerts that a receiver of a watcher has not accepted yet, newest first, 100 at most. `receiver` is a digest of its address. Expires a day after the last alert. Written by record_alert."""
        return f"{self.prefix}undelivered:{receiver}"

    @property
    def gocraft_pools(self) -> str:
        """Set: ids of the worker pools of gocraft/work in this namespace. Written by them, never by dayjob."""
        return f"{self.prefix}worker_pools"

    def gocraft_pool(self, pool_id: str) -> str:
        """Hash: the heartbeat of a worker pool of gocraft/work. Written by that pool, never by dayjob."""
        return f"{self.prefix}worker_pools:{pool_id}"

    def of_name(self, name: str) -> QueueKeys:
        """The four keys of one job name, in the order in which scripts expect them."""
        return QueueKeys(self.queue(name), self.paused(name), self.held_of(name), self.bell(name))
