"""FakeStore: takes what enqueuers send while a testing block is open, and runs it with the worker's own Runner."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context as Variables
from functools import partial
from typing import Any, TypeVar

from dayjob.enqueue.batches import Progress
from dayjob.enqueue.progress import JobProgress
from dayjob.enqueue.results import read_result
from dayjob.errors import GiveBack, NotReady, ResultTimeout, Signal, UnknownJob
from dayjob.job import Job
from dayjob.middleware import SKIPPED
from dayjob.options import JobOptions, PoolOptions
from dayjob.pool import WorkerPool
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops.batches import MemberChunk
from dayjob.store.ops.consume import Entry, token_of
from dayjob.store.ops.find import State
from dayjob.store.ops.produce import NewJob
from dayjob.store.ops.workflows import WorkflowChunk
from dayjob.store.stream_reader import Emitted
from dayjob.testing.clock import FakeClock
from dayjob.testing.limits import FakeLimits, Partition
from dayjob.testing.memory import HALF_GRAIN_SECONDS, Memory, MemoryEntry
from dayjob.testing.probe import MAX_BREAKS, Checkin, ProbedAttempt, passed_enqueue
from dayjob.testing.streams import FakeStreams
from dayjob.testing.workflows import FakeWorkflows
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt, Settlement
from dayjob.worker.running.event_loop import new_loop
from dayjob.worker.running.handler import new_pool_job_type
from dayjob.worker.running.runner import Abandon, Runner, as_timeout
from dayjob.worker.state import PoolState

T = TypeVar("T")

#: How many attempts one drain runs before it takes it that they will never end.
MAX_ATTEMPTS = 50_000
#: How deep inline jobs may enqueue one another: well below Python's own limit, for the sake of the message.
MAX_DEEP = 25
#: How many further errors are named beside the one that is raised.
MAX_NAMED = 10


class RecordingRunner(Runner):
    """The worker's runner, which also keeps the outcome of an attempt for the test that runs it."""

    def __init__(self, keys: Keys, context: type, now: Callable[[], float], max_result: int) -> None:
        # Seeded, so that the jitter of a backoff is the same in every run.
        super().__init__(keys, lambda: "testing", context, now, random.Random(0), max_result)
        self.results: dict[Attempt, Any] = {}
        self.errors: dict[Attempt, BaseException] = {}

    def _done(self, attempt: Attempt, result: Any) -> Settlement:
        self.results[attempt] = None if result is SKIPPED else result
        return super()._done(attempt, result)

    def _failed(self, attempt: Attempt, error: BaseException) -> Settlement:
        # A test that asks for a stop by timeout expects the signal with which the handler answers, not an error.
        self.errors[attempt] = error if isinstance(error, GiveBack) else as_timeout(attempt, error)
        return super()._failed(attempt, error)


class Round:
    """The attempts that one call runs: how many, and the errors among them."""

    def __init__(self) -> None:
        self.count = 0
        #: The ids of jobs that are due and were not run yet, in an inline block.
        self.due: deque[str] = deque()
        self._errors: list[BaseException] = []

    def add(self, attempt: Attempt, error: BaseException | None) -> None:
        """Count an attempt that was settled. Raises what is not the job's own, and NotReady where there is no end."""
        self.count += 1
        if error is not None and not isinstance(error, (Signal, *attempt.job_type.options.discard_on)):
            error.add_note(f"in job {attempt.name!r}, id {attempt.id}, attempt {attempt.attempt}")
            self._errors.append(error)
            if not isinstance(error, Exception | SystemExit | asyncio.CancelledError):
                raise error  # Ctrl-C, or an exception of the test framework such as that of pytest.fail()
        if self.count > MAX_ATTEMPTS:
            raise NotReady(
                f"drain() ran {MAX_ATTEMPTS:,} attempts and there are more: does {attempt.name!r} enqueue itself, "
                "or retry at once for ever? Run such jobs one by one, with run(job)"
            )

    def close(self, *, reraise: bool) -> int:
        """How many attempts were run. With `reraise`, raises the first error among them."""
        if reraise and self._errors:
            first, *others = self._errors
            for other in others[:MAX_NAMED]:
                first.add_note(f"another job failed after it: {type(other).__name__}: {other}")
            raise first
        return self.count


class FakeStore:
    """What stands in for Redis while a block is open. The Sink of its enqueuers."""

    def __init__(
        self,
        pool: WorkerPool[Any] | None,
        keys: Keys,
        clock: FakeClock,
        *,
        inline: bool,
        limits: bool,
        twice: bool = False,
    ) -> None:
        self.pool = pool
        self.now = clock.now
        self._limits = FakeLimits(clock.now, self._options) if limits else None
        #: Job id to its attempt that has not ended.
        self._running: dict[str, ProbedAttempt] = {}
        #: Job id to a job that is sent at the commit of a transaction.
        self._deferred: dict[str, NewJob] = {}
        self.memory = Memory(clock.now, self._limits, self._partition)
        self.memory.running = self._running
        self.open = False
        self._inline = inline
        self._twice = twice
        #: The check-ins of each job, by its id.
        self.checkins: dict[str, list[Checkin]] = {}
        self._streams = FakeStreams()
        options = PoolOptions() if pool is None else pool.options
        self._runner = RecordingRunner(
            keys, object if pool is None else pool.context, clock.now, options.max_result
        )
        self._job_types: dict[str, PoolJobType] = {}
        self._tokens = itertools.count(1)
        self._deep = 0
        # One loop for all async jobs of a block, as in a pool; busy while a job on it runs another one inline.
        self._loop = asyncio.Runner(loop_factory=new_loop)
        self._loop_free = threading.Lock()

    # What enqueuers ask of it.

    def store(self, batches: Sequence[Sequence[NewJob]], /) -> list[Job | None]:
        """Keep drafts, and run them at once when the block is inline."""
        answers, due = self._admit(batches)
        if self._inline:
            with self._deeper() as round_:
                for attempt in self._attempts(due, round_):
                    self.run(attempt, round_)
            round_.close(reraise=True)
        passed_enqueue()
        return answers

    async def astore(self, batches: Sequence[Sequence[NewJob]], /) -> list[Job | None]:
        """`store`, awaited."""
        answers, due = self._admit(batches)
        if self._inline:
            with self._deeper() as round_:
                for attempt in self._attempts(due, round_):
                    await self.arun(attempt, round_)
            round_.close(reraise=True)
        passed_enqueue()
        return answers

    def defer(self, batches: Sequence[Sequence[NewJob]], /) -> None:
        """Remember jobs that are stored when their transaction is committed."""
        self._deferred.update((one.job.id, one) for batch in batches for one in batch)

    def deferred(self) -> list[Job]:
        """The jobs whose transaction was not committed."""
        return [one.job for one in list(self._deferred.values())]

    def _attempts(self, due: list[str], round_: Round) -> Iterator[ProbedAttempt]:
        """The attempts of these jobs, and of what atomic ones among them enqueue."""
        round_.due.extend(due)
        while round_.due:
            attempt = self.take_in_turn(round_.due.popleft())
            if attempt is not None:
                yield attempt

    def result(self, job_id: str, /) -> Any:
        """What a job returned. Raises ResultTimeout when it has not ended, and JobFailed when it is dead."""
        raw = self.memory.result(job_id)
        if raw is None:
            raise ResultTimeout(f"no result of job {job_id} yet: in a testing block, call drain() first")
        return read_result(raw, job_id)

    def call(self, job_id: str, /) -> bytes:
        """Run a job whose caller waits, to its end. Returns its result as JSON. Raises ResultTimeout if it cannot run."""
        while (raw := self.memory.result(job_id)) is None:
            self.run(self._next_attempt(job_id), Round())
        return raw

    async def acall(self, job_id: str, /) -> bytes:
        """`call`, awaited."""
        while (raw := self.memory.result(job_id)) is None:
            await self.arun(self._next_attempt(job_id), Round())
        return raw

    def _next_attempt(self, job_id: str) -> ProbedAttempt:
        attempt = self.take(job_id)
        if attempt is None:
            raise ResultTimeout(
                f"job {job_id} cannot run: this block has no pool with its job type, or it is running"
            )
        return attempt

    def state(self, job_id: str, /) -> State | None:
        """Where a job is; None if it has ended and its result is not kept."""
        with self.memory.lock:
            return "running" if job_id in self._running else self.memory.state(job_id)

    def job_progress(self, job_id: str, /) -> JobProgress | None:
        """The last check-in of a job that runs."""
        attempt = self._running.get(job_id)
        if attempt is None or not attempt.checkins:
            return None
        return JobProgress(*attempt.checkins[-1], self.now() - (time.monotonic() - attempt.checkin_at))

    def stream(self, job_id: str, after: str, /) -> Iterator[Emitted]:
        """What a job has emitted. Raises JobFailed, and ResultTimeout if it has not ended."""
        with self.memory.lock:
            attempt = self._running.get(job_id)
            if attempt is not None:
                self._streams.collect(attempt)
            dead = next((one.wire.err for one in self.memory.dead if one.wire.id == job_id), "")
            enqueued = any(one.wire.id == job_id for one in self.memory.enqueued)
        return self._streams.read(job_id, after, self.state(job_id), dead, enqueued=enqueued)

    def progress(self, batch_id: str, /) -> Progress:
        """What became of the members of a batch."""
        return self.memory.batches.progress(batch_id)

    def cancel_batch(self, batch_id: str, /) -> bool:
        """End the members of a batch when their turn comes."""
        return self.memory.batches.cancel(batch_id)

    @property
    def workflows(self) -> FakeWorkflows:
        """The workflows of the block."""
        return self.memory.workflows

    def _admit(self, batches: Sequence[Sequence[NewJob]]) -> tuple[list[Job | None], list[str]]:
        """What the caller gets, and the ids of what is due now."""
        if not self.open:
            raise NotReady(
                "a job that was enqueued inside a testing block is sent after its end (an on_commit that came "
                "late?): commit inside the block"
            )
        answers: list[Job | None] = []
        due: list[str] = []
        for batch in batches:
            if isinstance(batch, WorkflowChunk):
                with self.memory.lock:
                    self.memory.workflows.start(batch)
                continue
            if isinstance(batch, MemberChunk):
                self.memory.batches.begin(batch)
            for one in batch:
                self._deferred.pop(one.job.id, None)
                new_job = self.memory.batches.numbered(one) if one.batch else one
                job = self.memory.admit(new_job)
                answers.append(job)
                is_new = job is not None and not job.existed
                if is_new:
                    self.memory.batches.joined(new_job)
                if is_new and (new_job.job.scheduled_at or 0.0) <= self.now() + HALF_GRAIN_SECONDS:
                    due.append(new_job.job.id)
            if isinstance(batch, MemberChunk) and batch.closes:
                self.memory.batches.close(batch.ids[0])
        return answers, [*due, *self._called()]

    def _called(self) -> Iterator[str]:
        """The callbacks of batches that were enqueued since."""
        while self.memory.called:
            yield self.memory.called.popleft()

    @contextmanager
    def _deeper(self) -> Iterator[Round]:
        with self.memory.lock:
            if self._deep >= MAX_DEEP:
                raise NotReady(
                    f"inline jobs enqueue one another {MAX_DEEP} deep; does one enqueue itself? "
                    "Use testing(pool) without inline, and drain()"
                )
            self._deep += 1
        try:
            yield Round()
        finally:
            with self.memory.lock:
                self._deep -= 1

    # Running jobs.

    def fetch(self) -> ProbedAttempt | None:
        """The next attempt there is and that its limits allow, if any."""
        with self.memory.lock:
            kept = self.memory.fetch(lambda one: self._able(one.wire.name) and self._allowed(one))
            return None if kept is None else self._attempt(kept)

    def take(self, job_id: str) -> ProbedAttempt | None:
        """An attempt of the job with this id, due or not; None if it does not wait, or if no pool of the block can run it."""
        with self.memory.lock:
            kept = self.memory.take(job_id, self._able)
            return None if kept is None else self._attempt(kept)

    def take_in_turn(self, job_id: str) -> ProbedAttempt | None:
        """An attempt of the job with this id; None also if its limits do not allow it, or if others of its name wait for one."""
        with self.memory.lock:
            if self._limits is not None:
                job = next((one for one in self.memory.queued if one.wire.id == job_id), None)
                if job is None or not self._able(job.wire.name):
                    return None
                partition = self._partition(job.wire)
                waiting = (one.wire for one in self.memory.queued if one.wire.name == partition.name)
                if next(
                    one.id for one in waiting if self._partition(one) == partition
                ) != job_id or not self._limits.allow(partition):
                    return None
            return self.take(job_id)

    def next_due(self) -> float | None:
        """When the next job that waits for its time, or for a limit, may start."""
        with self.memory.lock:
            moments = [self.memory.next_due()]
            if self._limits is not None:
                able = (one.wire for one in self.memory.queued if self._able(one.wire.name))
                moments.append(self._limits.next_start(set(map(self._partition, able))))
        return min((at for at in moments if at is not None), default=None)

    def run(self, attempt: ProbedAttempt, round_: Round) -> Any:
        """Run an attempt to its settlement. The answer is what the handler returned."""
        for broken in self._broken_runs(attempt):
            _outside_loops(partial(self._settlement, broken))
        settlement = _outside_loops(lambda: self._settlement(attempt))
        return self._settle(attempt, settlement, round_)

    async def arun(self, attempt: ProbedAttempt, round_: Round) -> Any:
        """Run an attempt to its settlement: an async one on this loop, a sync one on a thread beside it."""
        for broken in self._broken_runs(attempt):
            await self._task(broken)
        task = self._task(attempt)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            # The test gives up, not the job: it goes back to its queue.
            attempt.lost = True
            task.cancel()
            await asyncio.wait([task])
            self._settle(attempt, attempt.back() if task.cancelled() else task.result(), Round())
            raise
        return self._settle(attempt, task.result(), round_)

    def _task(self, attempt: Attempt) -> asyncio.Task[Settlement]:
        """A task of this loop that runs an attempt."""
        if attempt.job_type.is_async:
            # Nothing of the test's own variables reaches a job, as in a pool.
            loop = asyncio.get_running_loop()
            return loop.create_task(self._run_async(attempt), context=Variables())
        return asyncio.create_task(_beside(self._runner.run, attempt))

    def _broken_runs(self, attempt: ProbedAttempt) -> Iterator[ProbedAttempt]:
        """Further runs of an attempt whose outcomes do not count, in a block with `twice`.

        Each is broken off one enqueue or check-in later than the one before, and the last runs to its end.
        """
        for number in range(1, MAX_BREAKS + 1) if self._twice else ():
            broken = attempt.copy(break_at=number)
            yield broken
            error = self._runner.errors.pop(broken, None)
            self._runner.results.pop(broken, None)
            if error is not None and not isinstance(error, Exception | SystemExit | Abandon):
                raise error  # Ctrl-C, or an exception of the test framework such as that of pytest.fail()
            if broken.passed < number:
                return

    def close(self) -> None:
        """Close the loop of the block, and cancel what its jobs left running there."""
        _outside_loops(self._loop.close)

    def _able(self, name: str) -> bool:
        if name in self._job_types:
            return True
        if self.pool is None:
            return False
        try:
            registered = self.pool.find(name)
        except UnknownJob:
            return False  # it waits, as in production, for a pool that has it
        state = PoolState()
        state.cancelled_batches = self.memory.batches.cancelled
        job_type = new_pool_job_type(self.pool, registered, state)
        # Plain completions make no entry, and this store must see each end.
        job_type.plain = False
        self._job_types[name] = job_type
        return True

    def _options(self, name: str) -> JobOptions:
        return self._job_types[name].options

    def _partition(self, wire: codec.Wire) -> Partition:
        """The job's name and key, which its limits count by."""
        rule = self._options(wire.name).fair_by
        if rule is None or self.pool is None:
            return Partition(wire.name)
        return Partition(wire.name, self.pool.find(wire.name).keys.of(rule.by, wire.args, wire.source))

    def _allowed(self, kept: MemoryEntry) -> bool:
        return self._limits is None or self._limits.allow(self._partition(kept.wire))

    def _attempt(self, kept: MemoryEntry) -> ProbedAttempt:
        wire = kept.wire
        job_type = self._job_types[wire.name]
        attempt = ProbedAttempt(
            token_of(next(self._tokens), wire.name), wire.name, kept.payload, wire, job_type
        )
        attempt.started_at = time.monotonic()
        self._running[attempt.id] = attempt
        if self._limits is not None:
            attempt.charge = self._limits.start(self._partition(wire), attempt.token)
        if wire.unique_key and (wire.unique_until or job_type.options.unique_until) != "done":
            self.memory.release(wire.unique_key, wire.id)
        return attempt

    async def _run_async(self, attempt: Attempt) -> Settlement:
        """Run an async attempt in this task, which is its own, and cancel it at its timeout as the loop of a pool does."""
        timeout, task = attempt.job_type.options.timeout, asyncio.current_task()
        if timeout is None or task is None:
            return await self._runner.arun(attempt)

        def expire() -> None:
            attempt.timed_out = True
            task.cancel()

        timer = asyncio.get_running_loop().call_later(timeout, expire)
        try:
            return await self._runner.arun(attempt)
        finally:
            timer.cancel()

    def _settlement(self, attempt: Attempt) -> Settlement:
        if not attempt.job_type.is_async:
            return self._runner.run(attempt)
        if "django.db" in sys.modules:
            # Django's async ORM then uses the connection of this thread, which has the transaction of a TestCase.
            from asgiref.sync import async_to_sync  # noqa: PLC0415 - Django has loaded it

            settlement: Settlement = Variables().run(async_to_sync(self._run_async), attempt)
            return settlement
        if not self._loop_free.acquire(blocking=False):
            return Variables().run(asyncio.run, self._run_async(attempt))
        try:
            return self._loop.run(self._run_async(attempt), context=Variables())
        finally:
            self._loop_free.release()

    def _settle(self, attempt: ProbedAttempt, settlement: Settlement, round_: Round) -> Any:
        self.checkins.setdefault(attempt.id, []).extend(attempt.checkins)
        self._running.pop(attempt.id, None)
        self._streams.collect(attempt, settlement)
        self.memory.settle(attempt, settlement)
        if isinstance(settlement, Entry) and settlement.children is not None:
            round_.due.extend(self._admit([settlement.children.jobs])[1])
        round_.due.extend(self._called())
        round_.add(attempt, self._runner.errors.pop(attempt, None))
        return self._runner.results.pop(attempt, None)


async def _beside(run: Callable[[Attempt], Settlement], attempt: Attempt) -> Settlement:
    """Run a sync job on a thread; with Django on the one that has the connection of the test."""
    if "django.db" not in sys.modules:
        return await asyncio.to_thread(run, attempt)
    from asgiref.sync import sync_to_async  # noqa: PLC0415 - Django has loaded it

    settlement: Settlement = await sync_to_async(run)(attempt)
    return settlement


def _outside_loops(call: Callable[[], T]) -> T:
    """Call where no event loop runs, as a pool calls sync jobs: on a thread beside, when one runs on this."""
    # Not called inside an `except`, which would show in the traceback of a job.
    if asyncio._get_running_loop() is None:
        return call()
    with ThreadPoolExecutor(1, thread_name_prefix="dayjob-testing") as beside:
        return beside.submit(call).result()
