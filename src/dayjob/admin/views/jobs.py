"""Jobs as consoles show them: one, a page of them, and one with its timeline. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from dayjob.admin.records import AttemptRecord
from dayjob.explain.reasons import ReasonKind
from dayjob.store.ops.find import State

EventKind = Literal[
    "enqueued", "due", "started", "ended", "failed", "crashed", "died", "dropped", "expires", "action"
]


@dataclass(frozen=True, slots=True)
class Seen:
    """What an operator saw of a job: enough to find it again, and to notice that it has moved."""

    id: str
    #: Its state; None if that does not matter.
    state: State | None = None
    #: Its score, as the page showed it, which finds it in a set of any size.
    at: float | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """One job, redacted."""

    id: str
    name: str
    state: State
    #: When it is due, died, or will be removed from done, in seconds since the epoch; None in a queue.
    at: float | None = None
    args: Any = None
    source: str | int | None = None
    #: Texts that travel with the job.
    headers: dict[str, str] = field(default_factory=dict)
    #: Who enqueued it: the job inside which that was done, `<name>/<id>`, or the machine and process; "" if not known.
    parent: str = ""
    producer: str = ""
    #: When it was first enqueued; None if not known, as for some jobs that Go workers retried.
    enqueued_at: float | None = None
    #: When it last came into its queue: enqueued, due, or due again; None if not known.
    due_at: float | None = None
    #: The number of the running attempt, or of the next; of a completed job, the last.
    attempt: int = 1
    #: How many attempts were made, including the running one.
    attempts: int = 0
    fails: int = 0
    deaths: int = 0
    snoozes: int = 0
    error: str = ""
    trace: str = ""
    failed_at: float | None = None
    expires_at: float | None = None
    unique_key: str = ""
    #: Why its bytes cannot be read as a job; "" if they can.
    problem: str = ""
    #: How many jobs are ahead of it in its queue.
    place: int | None = None
    #: The key under which it waits, if its name has keys.
    key: str | None = None
    #: The running attempt.
    pool_id: str = ""
    token: str = ""
    #: The stored result.
    result: Any = None
    #: Of a completed job: when it completed, and how many seconds it ran.
    done_at: float | None = None
    ran: float | None = None
    #: The batch of which it is a member or a callback; "" if of none.
    batch: str = ""
    #: The workflow of which it is a node, and its number there; "" and None if of none.
    workflow: str = ""
    node: int | None = None
    #: Its attempts that failed or whose process died, the last ten, oldest first.
    past: tuple[PastAttempt, ...] = ()
    #: The stored bytes, by which actions identify the job.
    payload: bytes = field(default=b"", repr=False)

    @property
    def queue(self) -> str:
        """Where it waits, as the store names queues and partitions."""
        return self.name if self.key is None else f"{self.name}|{self.key}"

    @property
    def size(self) -> int:
        """Bytes of its payload."""
        return len(self.payload)

    @property
    def seen(self) -> Seen:
        """Identifies this job, in this state, in an action."""
        return Seen(self.id, self.state, self.at, self.name or None)


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt that failed, or whose process died."""

    attempt: int
    at: float
    #: Seconds that it ran; 0 when that is not known, as of one whose process died.
    ran: float
    #: The first line of its error.
    error: str
    #: Id of the pool whose process died; "" for an attempt that failed.
    died_in: str = ""


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs of one state, in order."""

    now: float
    state: State
    #: How many there are in all, filter or not.
    total: int
    jobs: tuple[JobView, ...]
    #: Pass it as `after` for the next page; "" on the last page.
    next: str = ""
    #: How many entries were searched for this page; a filter may pass over many.
    searched: int = 0
    #: How many waiting jobs cannot be listed, because they are behind the first 10,000 of their queue.
    beyond: int = 0
    #: How many entries come after those that were searched: the next pages have them.
    left: int = 0
    #: The sort that this is: a column, with a minus where the greatest comes first.
    sort: str = ""
    #: How many entries were compared for the sort; 0 where it is the order of the whole list.
    sorted_among: int = 0
    #: How many were passed over, because a filter compares arguments and theirs are hidden.
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One event in the life of a job."""

    at: float
    text: str
    kind: EventKind = "due"


@dataclass(frozen=True, slots=True)
class JobDetail:
    """One job in any state, with its timeline."""

    job: JobView
    #: Why it is not running, or that it is, in one sentence.
    sentence: str
    timeline: tuple[Event, ...]
    #: The code that enqueues a job like it; hidden arguments stay hidden.
    python: str
    command: str
    #: The reason as a stable word for programs.
    kind: ReasonKind = "not_found"
    #: Its attempts that the history has, oldest first.
    attempts: tuple[AttemptRecord, ...] = ()
