"""Outcomes: the closed set of what can become of an attempt.

`retry.decide` chooses one after an exception. The runner reports the outcomes of a pool's own attempts, the reaper those
of a crashed pool's attempts. An outcome is a pure decision: it knows neither the attempt nor the job's payload. Both are
in the `Entry` that carries it to Redis (`store/ops/consume.py`).
"""

from __future__ import annotations

import msgspec


class Done(msgspec.Struct, frozen=True, gc=False):
    """The handler returned. Nothing is stored."""


class Kept(msgspec.Struct, frozen=True, gc=False):
    """The handler returned. The job and its result are stored for some time."""

    seconds: float


class Retried(msgspec.Struct, frozen=True, gc=False):
    """The attempt failed. The job runs again after some seconds."""

    after: float
    #: The reason in words, here and below. It may contain the text of a signal, but never that of an exception.
    why: str = ""


class Snoozed(msgspec.Struct, frozen=True, gc=False):
    """The handler asked for a later run. The attempt does not count as failed."""

    after: float
    why: str = ""


class Died(msgspec.Struct, frozen=True, gc=False):
    """The job moves to dead."""

    counts_failure: bool
    why: str = ""


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """The job ends, and nothing is stored: it was discarded, it expired, or `skip_dead` drops it."""

    counts_failure: bool
    why: str = ""


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """An operator cancelled the job. It ends, and nothing is stored."""


class GivenBack(msgspec.Struct, frozen=True, gc=False):
    """The job goes back to the head of its queue as it was fetched, and the attempt does not count."""

    #: The unique key that the job takes again, because it released the key but never started; or "".
    unique_key: str = ""
    why: str = ""


class HeldBack(msgspec.Struct, frozen=True, gc=False):
    """The handler raised Throttled. The job goes back to the head of its queue, and these limits hold for some seconds."""

    limits: tuple[str, ...]
    after: float
    why: str = ""


class Rewound(msgspec.Struct, frozen=True, gc=False):
    """Redis lost recent writes and holds an attempt that the pool does not know. The job goes back to its queue."""


class Reaped(msgspec.Struct, frozen=True, gc=False):
    """The attempt's pool crashed. The job goes back to the head of its queue."""


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """The payload cannot be read or rewritten. It moves to broken."""


#: The outcomes of an attempt that raised an exception.
ErrorOutcome = Retried | Snoozed | Died | Dropped | GivenBack | HeldBack
Outcome = Done | Kept | ErrorOutcome | Cancelled | Rewound | Reaped | Unreadable


class Release(msgspec.Struct, frozen=True, gc=False):
    """Release the job's unique key. On its first run, a newer job that gocraft stored in the key replaces its payload."""

    unique_key: str
    first_run: bool


class NameSuspect(msgspec.Struct, frozen=True, gc=False):
    """Record in the pool's state that this suspect runs next."""


class Recharge(msgspec.Struct, frozen=True, gc=False):
    """Redis lost recent writes, among them this attempt, which runs on. Charge the limits for it again."""


class Stage(msgspec.Struct, frozen=True, gc=False):
    """Keep a part of the jobs that an atomic job enqueued, because they are too many for the exchange that completes it."""

    #: The number of the staged list, how many jobs are in it already, and the payloads to add.
    number: int
    before: int
    payloads: tuple[bytes, ...]


class Emit(msgspec.Struct, frozen=True, gc=False):
    """Add what the attempt emitted to the stream of its job."""


#: What an attempt needs from Redis without ending: before it starts, while it runs, after Redis lost it, or before it completes.
StartRequest = Release | NameSuspect | Recharge | Stage | Emit


def counts_failure(outcome: Outcome | StartRequest) -> bool:
    """Whether the attempt counts as failed."""
    return isinstance(outcome, Retried) or (isinstance(outcome, Died | Dropped) and outcome.counts_failure)
