"""Every key, built here and nowhere else. A docstring says type, content, life and who writes it.

The public keys are gocraft/work's, so that any language can share a namespace; the private ones are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dayjob.options import check_namespace


class QueueKeys(NamedTuple):
    """The keys of one job name that scripts pass together."""

    queue: str
    paused: str
    held: str
    bell: str


@dataclass(frozen=True)
class Keys:
    """The keys of one namespace. Two with the same namespace are equal: a value, so that shards can come."""

    namespace: str
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        """Apply gocraft's prefix rule: `w1` and `w1:` are the same, and "" has no prefix. Raises BadOption."""
        check_namespace(self.namespace)
        bare = self.namespace == "" or self.namespace.endswith(":")
        object.__setattr__(self, "prefix", self.namespace if bare else self.namespace + ":")

    # Public keys: the wire contract.

    def queue(self, name: str) -> str:
        """List of payloads; LPUSH by any producer, taken at the right by exchange. No expiry."""
        return f"{self.prefix}jobs:{name}"

    def paused(self, name: str) -> str:
        """String; while it exists, with any value, the queue is not fetched. Written by operators."""
        return f"{self.prefix}jobs:{name}:paused"

    @property
    def known_jobs(self) -> str:
        """Set of job names ever enqueued or registered. Written by enqueues, requeues and pools at start."""
        return f"{self.prefix}known_jobs"

    @property
    def scheduled(self) -> str:
        """Sorted set: payload by the second it is due. Written by enqueues and snoozes."""
        return f"{self.prefix}scheduled"

    @property
    def retry(self) -> str:
        """Sorted set: payload by the second of its next run. Written by exchange and sweep."""
        return f"{self.prefix}retry"

    @property
    def dead(self) -> str:
        """Sorted set: payload by the second it died. Written by exchange and sweep, capped by trim."""
        return f"{self.prefix}dead"

    def unique(self, name: str, rest: str) -> str:
        """String: id of the job that holds the key; expires 30 days after that job is due."""
        return f"{self.prefix}unique:{name}:{rest}"

    @property
    def unique_prefix(self) -> str:
        """What every unique key begins with; a payload that names another key is not obeyed."""
        return f"{self.prefix}unique:"

    # Private keys.

    @property
    def pools(self) -> str:
        """Sorted set: pool id by the end of its lease in Redis milliseconds. Written by join, beat, exchange."""
        return f"{self.prefix}pools"

    @property
    def condemned(self) -> str:
        """Sorted set: id of a dead pool whose attempts are being swept, by when. Written by condemn and leave."""
        return f"{self.prefix}condemned"

    @property
    def watch(self) -> str:
        """Hash: `last` pass of condemn and `quiet` until when no lease is judged, Redis milliseconds."""
        return f"{self.prefix}watch"

    def pool(self, pool_id: str) -> str:
        """String: the pool's status for people, JSON. Written by status, expires after an hour."""
        return f"{self.prefix}pool:{pool_id}"

    def state(self, pool_id: str) -> str:
        """Hash: `last` request number, `suspect`, `cause`, `culprit`, `cancel:<token>` (1 or kill), `wish:<what operators ask of it>`."""
        return f"{self.prefix}pool:{pool_id}:state"

    def held(self, pool_id: str) -> str:
        """Hash: token to payload, the attempts this pool holds. Token is `<number>:<job name>`."""
        return f"{self.prefix}pool:{pool_id}:held"

    def stacks(self, pool_id: str) -> str:
        """List of one: where the pool's busy workers were in their code, JSON; written when asked for, a minute."""
        return f"{self.prefix}pool:{pool_id}:stacks"

    @property
    def limits(self) -> str:
        """Hash: job name to the concurrency limit in force, `<name>|by` to who set it: code or operator, or lifted by an operator; `<name>|counting` while a new limit is counted, which is 1e6 for a name that had none."""
        return f"{self.prefix}limits"

    def held_of(self, name: str) -> str:
        """Set of `<pool>/<token>` for a name in `limits`. The limit counts this set."""
        return f"{self.prefix}held:{name}"

    def bell(self, name: str) -> str:
        """Sorted set of at most one member: there is something to fetch. Popped by one waiting pool."""
        return f"{self.prefix}bell:{name}"

    @property
    def due(self) -> str:
        """Sorted set of at most one member: something is due sooner. Popped by the leader."""
        return f"{self.prefix}due"

    @property
    def leader(self) -> str:
        """String: id of the pool that does the chores; expires after three seconds."""
        return f"{self.prefix}leader"

    @property
    def periodic(self) -> str:
        """Hash: schedule to the last tick dealt with, or when it was first seen; `<schedule>|ticked`: the last that enqueued a job, empty before; `<schedule>|off` while paused, saying when and by whom; `<schedule>|is`: what it is; `<schedule>|run`: first and last tick since the last gap; `<schedule>|ahead`: such pairs that a clock ahead has enqueued."""
        return f"{self.prefix}periodic"

    @property
    def broken(self) -> str:
        """List of entries that could not be read: a JSON header, a newline, and the bytes as they were."""
        return f"{self.prefix}broken"

    def sent(self, slot: str) -> str:
        """String: the last enqueue number of one enqueuer connection and its answer; an hour."""
        return f"{self.prefix}sent:{slot}"

    def job_id(self, job_id: str) -> str:
        """String: set for an id that a caller chose, so that a repeat is safe; a day."""
        return f"{self.prefix}id:{job_id}"

    @property
    def totals(self) -> str:
        """Hash: `<counter>:<job name>` to its exact total. Written by every script that moves a job."""
        return f"{self.prefix}stats:totals"

    def minute(self, minute: int) -> str:
        """Hash: per job name the fails, sizes and histograms of one minute since the epoch; 73 hours, or 4 once its hour is rolled up. Written by exchange, sample."""
        return f"{self.prefix}stats:minute:{minute}"

    def counts(self, span: int, minute: int) -> str:
        """String: the counts of the 1, 5, 15, 60, 360 or 1440 minutes from this one on, JSON; 2 to 97 hours. Written by the leader."""
        return f"{self.prefix}stats:counts:{span}:{minute}"

    def times(self, span: int, minute: int) -> str:
        """String: the histograms of the 1, 5, 15, 60, 360 or 1440 minutes from this one on, JSON; 2 to 97 hours. Written by the leader."""
        return f"{self.prefix}stats:times:{span}:{minute}"

    @property
    def done(self) -> str:
        """Sorted set: completed jobs that are kept, by the second they are dropped. Capped by trim."""
        return f"{self.prefix}done"

    def result(self, job_id: str) -> str:
        """String: the result of a completed job, or the error of a dead one, JSON; as long as `keep`."""
        return f"{self.prefix}result:{job_id}"

    @property
    def job_types(self) -> str:
        """Hash: job name to what its pools say of it, JSON; `<name>|at` to when. Dropped 30 days after the last pool announced it, or later: after `dead_age` and two days."""
        return f"{self.prefix}job_types"

    @property
    def audit(self) -> str:
        """List: what operators did, newest first: Redis milliseconds, a space and JSON. Written by note, 1,000 lines."""
        return f"{self.prefix}audit"

    def of_name(self, name: str) -> QueueKeys:
        """The four keys of one job name, in the order that scripts take them."""
        return QueueKeys(self.queue(name), self.paused(name), self.held_of(name), self.bell(name))
