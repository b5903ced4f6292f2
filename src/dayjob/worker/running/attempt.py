"""Attempt: one delivery of a job to this pool, from the exchange that brought it to the one that settles it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from dayjob.errors import NotReady
from dayjob.job import Job, StopReason, new_id
from dayjob.options import JobOptions
from dayjob.outcome import Cancelled, Died, Dropped, GivenBack
from dayjob.store import codec, fork
from dayjob.store.codec import PlainMember, Wire
from dayjob.store.ops.batches import Member, member_of
from dayjob.store.ops.children import Children
from dayjob.store.ops.consume import Entry, ended_result
from dayjob.store.ops.produce import NewJob
from dayjob.store.ops.rates import Charge, Spent
from dayjob.store.ops.workflows import AddedNodes
from dayjob.worker.running.attempt_stream import AttemptStream, check_process

if TYPE_CHECKING:
    from dayjob.worker.pool_job_type import PoolJobType
    from dayjob.worker.running.attempt_log import AttemptLog

#: The error of a job that an operator killed while it ran.
KILLED_RUNNING = "killed by an operator while it ran"
#: How an attempt ended: None if it is done and Redis has nothing to store or release, else an entry for the next exchange. A
#: member of a batch has itself instead of None: it is settled in a group with others of its batch.
Settlement = Entry | PlainMember | None
_GIVEN_BACK = GivenBack()
#: Held while a job is added to the children of an attempt, because its handler may use several threads.
_collecting = threading.Lock()


class Attempt(msgspec.Struct, eq=False):
    """The state of one attempt. Also receives the check-ins of its job.

    A msgspec struct because it is fast to create, and every job needs one. Compared by identity.
    """

    token: str
    name: str
    payload: bytes
    wire: Wire
    job_type: PoolJobType
    job: Job | None = None
    #: Monotonic times: when it was handed to an executor, when it started, and its deadline.
    given_at: float = 0.0
    started_at: float = 0.0
    deadline: float = 0.0
    #: Seconds that it ran; None until it ends.
    ran: float | None = None
    worker: int = -1
    thread_id: int = 0
    #: Held while another thread raises an exception in its thread; None for async attempts.
    guard: AbstractContextManager[object] | None = None
    #: Its handler has ended: no exception may be raised in its thread any more.
    over: bool = False
    #: Redis no longer has this attempt: its outcome is not reported.
    lost: bool = False
    #: An operator cancelled the job: it never runs again. With `killed` it also goes to dead.
    cancelled: bool = False
    killed: bool = False
    timed_out: bool = False
    #: The watchdog reports its outcome, because its thread is stuck.
    given_up: bool = False
    #: Its unique key was released.
    released: bool = False
    #: What the rate limits of its job name were charged; None if it has none.
    charge: Charge | None = None
    #: The seconds that its key was charged when it was fetched, if the keys of its name share time; None if they do not.
    price: float | None = None
    #: An outcome was reported. Later ones are ignored.
    settled: bool = False
    #: Monotonic time before which its outcome is not sent, unless the pool stops.
    hold_until: float = 0.0
    #: The reported outcome.
    settlement: Settlement = None
    checkin_text: str = ""
    checkin_at: float = 0.0
    progress: float | None = None
    total: float | None = None
    #: What it logged, if its job type keeps that and there is something.
    log: AttemptLog | None = None
    #: The jobs that its handler enqueued, if it is atomic. They are stored if it completes.
    children: Children | None = None
    #: The nodes that its handler added to its workflow. They are stored if it completes.
    added: AddedNodes | None = None
    #: What its handler emitted.
    stream: AttemptStream | None = None

    def open(self) -> Job:
        """The job as its handler sees it. Created at first use, because most handlers need only their arguments."""
        if self.job is None:
            self.job = codec.job_of(self.wire)
            self.job.line = self
            self.job.redact = self.job_type.options.redact
            self.job.max_fails = self.job_type.options.max_fails
        return self.job

    def back(self) -> Entry:
        """The entry that returns it to its queue.

        If it released its unique key but never started, the entry also takes the key again. What rate limits were
        charged for an attempt that never started is taken back.
        """
        spent = self.spent()
        if self.released and not self.started_at:
            return Entry(
                self.name, self.token, GivenBack(self.wire.unique_key), job_id=self.wire.id, spent=spent,
                worked=self.worked(),
            )  # fmt: skip
        return Entry(self.name, self.token, _GIVEN_BACK, spent=spent, worked=self.worked())

    def worked(self) -> float | None:
        """The seconds that it took more, or less, than its key was charged; None if the keys of its name do not share time."""
        return None if self.price is None else (self.ran or 0.0) - self.price

    def spent(self) -> Spent | None:
        """The correction of what rate limits were charged, if the job reported other units or never started."""
        charge = self.charge
        if charge is None:
            return None
        if not self.started_at:
            return Spent(-charge.cost, charge.marks, undone=True)
        used = None if self.job is None else self.job.spent
        return None if used is None or used == charge.cost else Spent(used - charge.cost, charge.marks)

    def keeps_result(self) -> float | None:
        """For how many seconds its result or last error is kept; None if it is not."""
        keep = self.job_type.options.keep
        asked = None if self.wire.reply is codec.NULL else codec.reply_seconds(self.wire)
        return keep if asked is None or (keep is not None and keep > asked) else asked

    def ended_result(self, outcome: Died | Dropped | Cancelled, message: str = "") -> bytes:
        """What a caller that waits for its result gets now that it ends without one; `message` is its last error."""
        awaited = self.wire.reply is not codec.NULL
        if not awaited and self.job_type.options.keep is None:
            return b""
        if isinstance(outcome, Died):
            outcome = Died(outcome.counts_failure, message)
        return ended_result(outcome, kept=self.job_type.options.keep is not None, awaited=awaited)

    def own_key(self, unique_prefix: str) -> str:
        """The job's unique key; "" if it has none, or one that is not a unique key of this namespace."""
        key = self.wire.unique_key
        return key if key.startswith(unique_prefix) else ""

    def cancellation(self, unique_prefix: str, now: float) -> Entry:
        """The entry that ends a cancelled job: dropped, or moved to dead if killed. Its unique key is released."""
        job_id, releases = self.wire.id, self.own_key(unique_prefix)
        if not self.killed:
            result = self.ended_result(Cancelled())
            return Entry(self.name, self.token, Cancelled(), job_id=job_id, result=result, releases=releases)
        payload = killed_payload(self.payload, now)
        died = Died(counts_failure=False, why=KILLED_RUNNING)
        return Entry(
            self.name, self.token, died, payload, job_id, self.ended_result(died, KILLED_RUNNING), releases
        )

    @property
    def id(self) -> str:
        """The job's id."""
        return self.wire.id

    @property
    def attempt(self) -> int:
        """1 for the first delivery of the job."""
        wire = self.wire
        return 1 + wire.fails + wire.deaths + wire.snoozes

    @property
    def source(self) -> str | int | None:
        """The job's `source`, as its enqueuer set it."""
        return self.wire.source

    @property
    def options(self) -> JobOptions:
        """The options of its job type."""
        return self.job_type.options

    @property
    def stopping(self) -> bool:
        """Whether the handler should stop."""
        return self.stop_reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the handler should stop, or None."""
        if self.lost:
            return "lost"
        if self.cancelled:
            return "cancelled"
        if self.timed_out:
            return "timeout"
        return "shutdown" if self.job_type.stopping else None

    @property
    def atomic(self) -> bool:
        """Whether what its handler enqueues is kept until it completes."""
        return self.job_type.options.atomic

    def collect(self, place: object, new_jobs: Iterable[NewJob]) -> bool:
        """Keep jobs that its handler enqueues until it completes. False if they must be sent at once.

        That is so in another namespace or on another server, in a process that the handler forked, and in hooks, which
        run when the handler has ended. Raises TooLarge.
        """
        if place != self.job_type.place or fork.number != self.job_type.forks:
            return False
        with _collecting:
            if self.over:
                return False
            if self.children is None:
                self.children = Children()
            self.children.add(new_jobs)
            return True

    def runs(self, place: tuple[str, str], name: str) -> bool:
        """Whether its pool also runs the jobs of this name that are enqueued at `place`."""
        return self.job_type.type.pool_runs(place, name)

    def has_pending(self, job_id: str) -> bool:
        """Whether the job with this id is stored if this attempt completes."""
        return self.children is not None and job_id in self.children

    def take_children(self) -> Children | None:
        """What its handler enqueued, now that it has ended."""
        with _collecting:
            self.over = True
            return self.children

    @property
    def of_cancelled_batch(self) -> bool:
        """Whether an operator cancelled its batch or one above that, or its node of a workflow."""
        cancelled, found = self.job_type.pool.cancelled_batches, codec.membership(self.wire)
        if not cancelled or found is None:
            return False
        if found[0][0].startswith(codec.WORKFLOW):
            return f"{found[0][0]}/{found[1][0]}" in cancelled
        return found[1][0] >= 0 and not cancelled.isdisjoint(found[0])

    def ended_member(self, found: codec.BatchMembership | None, entry: Entry) -> Member | None:
        """What its outcome makes of a member of a batch, or of a node of a workflow."""
        member = member_of(found, entry.outcome)
        if member is None or not member.is_node or member.fate != "completed":
            return member
        added = () if self.added is None else self.added.args()
        return Member(member.ids, member.numbers, member.fate, entry.result, added)

    def running_workflow(self, workflow_id: str) -> Any:
        """The workflow of its job, to which its handler adds nodes."""
        if self.added is None:
            self.added = AddedNodes()
        return self.job_type.type.pool.enqueuer.running_workflow(workflow_id, self.added)

    def batch(self, ids: tuple[str, ...]) -> Any:
        """The batch of its job, of which `ids` names it and those above."""
        return self.job_type.type.batch_of(ids)

    def emit(self, value: Any) -> None:
        """Send a value to those who read the stream of its job. Raises BadArguments, TooLarge, NotReady."""
        check_process(self)
        if self.over:
            raise NotReady(f"{self.name}: emit: the attempt has ended")
        if self.stream is None:
            with _collecting:
                if self.stream is None:
                    self.stream = AttemptStream(self)
        if self.stream.add(value):
            self.job_type.pool.emits.add(self)

    def checkin(self, text: str, done: float | None, total: float | None) -> None:
        """Store a check-in of the handler. The next status shows it."""
        # A handler may pass anything, and the status must be able to encode it.
        self.checkin_text = codec.cut(text if isinstance(text, str) else repr(text))[:1000]
        self.progress, self.total = _number(done), _number(total)
        self.checkin_at = time.monotonic()


def killed_payload(payload: bytes, now: float) -> bytes:
    """The dead payload of a running job that an operator killed. Unchanged if its fields cannot be read."""
    # A unique `attempt`, so that two jobs with the same bytes stay two members of the sorted set.
    changes = {"err": KILLED_RUNNING, "failed_at": int(now), "attempt": f"operator/{new_id()}"}
    try:
        return codec.rewrite(payload, changes)
    except codec.Broken:
        return payload


def _number(value: float | None) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None
