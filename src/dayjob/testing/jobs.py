"""Jobs: what a test sees of its block. Opens and closes it, asks what was enqueued, moves the clock, runs jobs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, get_args

from dayjob import cron
from dayjob.enqueue.builder import Builder, Sink
from dayjob.enqueue.workflows import Workflow
from dayjob.errors import BadOption, NotReady, UnknownJob
from dayjob.handlers.periodic import PeriodicJob
from dayjob.job import Job, StopReason, new_id
from dayjob.option_checks import Seconds
from dayjob.store import codec
from dayjob.store.ops.workflows import WorkflowChange
from dayjob.testing import match
from dayjob.testing.clock import FakeClock
from dayjob.testing.fake_store import FakeStore, Round
from dayjob.testing.match import AnyJobType
from dayjob.testing.memory import MemoryEntry, by_time
from dayjob.testing.probe import Checkin, ProbedAttempt

#: Guards the open blocks and every change of a builder's sink.
_opening = threading.Lock()
#: Open blocks, outermost first.
_open: list[Jobs] = []


def catches(namespace: str) -> bool:
    """Whether an open block keeps what is enqueued in this namespace."""
    with _opening:
        return any(builder.keys.namespace == namespace for block in _open for builder in block._builders)


class Jobs:
    """The jobs of one testing block: what was enqueued, where each is now, and the means to run them.

    Threads may share it. Its lists of jobs can be read after the block, too.
    """

    def __init__(self, stage: FakeStore, builders: Sequence[Builder], clock: FakeClock) -> None:
        #: The clock that this block goes by.
        self.clock = clock
        self._stage = stage
        self._memory = stage.memory
        self._builders = builders
        #: What took the drafts of each builder before.
        self._outer: list[Sink | None] = []
        self._thread = 0
        self._draining = threading.Lock()

    def __enter__(self) -> Self:
        pool = self._stage.pool
        if self._outer:
            raise NotReady("a testing block is used once: write testing(...) again for another")
        if pool is not None and pool._running:
            raise NotReady("this pool is started and works on its server: stop() it before testing(pool)")
        with _opening:
            self._thread = threading.get_ident()
            for block in _open:
                if block._thread != self._thread and any(one in block._builders for one in self._builders):
                    raise NotReady(
                        "another thread has a testing block open on this pool, and would lose its jobs to this "
                        "one: share one block between threads, or give each thread a pool of its own"
                    )
            self._outer = [builder.sink for builder in self._builders]
            for builder in self._builders:
                builder.sink = self._stage
            self._stage.open = True
            _open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        with _opening:
            self._stage.open = False
            _open.remove(self)
            for builder, outer in zip(self._builders, self._outer, strict=True):
                if builder.sink is self._stage:
                    builder.sink = outer
                for block in _open:
                    # One that was opened inside this block and outlives it must not bring it back.
                    block._outer = [
                        outer if sink is self._stage and one is builder else sink
                        for one, sink in zip(block._builders, block._outer, strict=True)
                    ]
        self._stage.close()

    # What was enqueued.

    def enqueued(self, name: str | AnyJobType | None = None) -> list[Job]:
        """Every job that was enqueued in this block, in order, or those of one name. Raises UnknownJob.

        Jobs that have run since are among them; duplicates of unique jobs, which were refused, are not.
        """
        wanted = None if name is None else self._name(name)
        return [job for job in self._jobs(self._memory.enqueued) if wanted in (None, job.name)]

    def assert_enqueued(self, name: str | AnyJobType, /, **args: Any) -> Job:
        """The newest job of that name with these arguments, whatever its other arguments are.

        Raises AssertionError that lists what was enqueued, and UnknownJob or BadArguments where the pool has no
        such job or argument.
        """
        __tracebackhide__ = True
        found = self._matching(name, args)
        if not found:
            raise AssertionError(self._report(name, args, "was not enqueued"))
        return found[-1]

    def assert_not_enqueued(self, name: str | AnyJobType, /, **args: Any) -> None:
        """Raise AssertionError if a job of that name with these arguments was enqueued.

        Raises UnknownJob or BadArguments where the pool has no such job or argument.
        """
        __tracebackhide__ = True
        if self._matching(name, args):
            raise AssertionError(self._report(name, args, "was enqueued"))

    # Where jobs are now.

    @property
    def queued(self) -> list[Job]:
        """The jobs that wait or are due, in the order in which drain() would run them, with those that a limit holds back."""
        return self._jobs(self._memory.queued)

    @property
    def scheduled(self) -> list[Job]:
        """The jobs that are scheduled or snoozed, soonest first. `scheduled_at` has the time."""
        return self._jobs(sorted(self._memory.scheduled, key=by_time))

    @property
    def retry(self) -> list[Job]:
        """The jobs that failed and wait for their next attempt, soonest first. `scheduled_at` has the time."""
        return self._jobs(sorted(self._memory.retry, key=by_time))

    @property
    def dead(self) -> list[Job]:
        """The jobs that failed for good. `error` has the last error of each."""
        return self._jobs(self._memory.dead)

    @property
    def done(self) -> list[Job]:
        """The jobs that completed, in the order in which they completed."""
        return self._jobs(self._memory.done)

    @property
    def discarded(self) -> list[Job]:
        """The jobs that ended without completing or going to dead: discarded, expired, or dropped by `skip_dead`."""
        return self._jobs(self._memory.discarded)

    # Time, and running jobs.

    def advance(self, by: Seconds | None = None) -> None:
        """Move the clock; without `by`, to when the next job is due or, with limits, may start. Runs nothing.

        Raises NotReady when there is no such job, and BadOption when time would go back.
        """
        if by is None:
            due = self._stage.next_due()
            if due is None:
                raise NotReady(
                    "advance(): no job is scheduled or waits for a retry or a limit; give the seconds: advance(60)"
                )
            by = max(0.0, due - self.clock.now())
        self.clock.advance(by)

    def drain(self, *, reraise: bool = True) -> int:
        """Run all that is queued or due, and what that enqueues, in order; the answer is how many attempts it took.

        Each job ends as it would in a pool: done, in retry, dead. When all is done, the first error among them is
        raised, so that no failure goes unseen; `reraise=False` leaves them to `retry` and `dead`. Signals, and
        what `discard_on` names, are no errors. Raises NotReady when it is draining already, or would never end.
        """
        with self._round() as round_:
            while (attempt := self._stage.fetch()) is not None:
                self._stage.run(attempt, round_)
        return round_.close(reraise=reraise)

    async def adrain(self, *, reraise: bool = True) -> int:
        """`drain` in async code: async jobs run on the caller's loop, sync ones on a thread."""
        with self._round() as round_:
            while (attempt := self._stage.fetch()) is not None:
                await self._stage.arun(attempt, round_)
        return round_.close(reraise=reraise)

    def run(self, job: Job | str, *, stop: StopReason | None = None, stop_after: int = 1) -> Any:
        """Run one attempt of a job that waits, due or not, and return what its handler returned.

        With `stop`, the job is asked to stop at its check-in number `stop_after`: `checkin()` returns True and
        `stop_reason` is "shutdown", "cancelled", "timeout" or "lost". Limits do not hold it back, but count it. Raises the error that the attempt ended with, and NotReady when the job does not wait.
        """
        round_ = Round()
        result = self._stage.run(self._attempt(job, stop, stop_after), round_)
        round_.close(reraise=True)
        return result

    async def arun(self, job: Job | str, *, stop: StopReason | None = None, stop_after: int = 1) -> Any:
        """`run` in async code: an async job runs on the caller's loop, a sync one on a thread."""
        round_ = Round()
        result = await self._stage.arun(self._attempt(job, stop, stop_after), round_)
        round_.close(reraise=True)
        return result

    @contextmanager
    def _round(self) -> Iterator[Round]:
        self._check_open("drain()")
        if not self._draining.acquire(blocking=False):
            raise NotReady("drain() is under way: neither a job nor a second thread can drain the same block")
        try:
            yield Round()
        finally:
            self._draining.release()

    def tick(self, schedule: str | PeriodicJob | AnyJobType) -> Job:
        """Move the clock to the next tick of a schedule of the pool, and enqueue its job as the tick does. Runs nothing.

        `schedule` is its name, what `pool.periodic` returned, or a job type that has one schedule. Raises BadOption
        when there is no such schedule or more than one.
        """
        self._check_open("tick()")
        record = self._schedule(schedule)
        at = cron.parse(record.spec, record.timezone).next_after(self.clock.now())
        if at is None:
            raise BadOption(f"tick({record.name!r}): the schedule has no further tick")
        self.clock.advance(max(0.0, at - self.clock.now()))
        extras = {"periodic": record.name, "tick": at}
        return self._memory.tick(codec.write(codec.quoted(record.job), new_id(), at, record.args, extras))

    def _schedule(self, schedule: str | PeriodicJob | AnyJobType) -> PeriodicJob:
        known = {} if self._stage.pool is None else self._stage.pool.periodics
        name = schedule if isinstance(schedule, str) else schedule.name
        found = [known[name]] if name in known else [one for one in known.values() if one.job == name]
        if len(found) != 1:
            why = f"{name!r} has {len(found)} schedules" if found else f"there is no schedule {name!r}"
            raise BadOption(f"tick(): {why}; the pool has {', '.join(map(repr, known)) or 'none'}")
        return found[0]

    # What an operator does to workflows.

    def cancel_workflow(self, workflow: Workflow | str, *, node: int | None = None) -> int:
        """End the nodes of a workflow, or a node and all that need it, as `Admin.cancel_workflow` does. Returns how many."""
        return self._change_workflow(workflow, "cancel", node)

    def retry_workflow(self, workflow: Workflow | str, *, node: int | None = None) -> int:
        """Let a node run again, and then all that need it; without a node all that are dead or cancelled. Returns how many.

        Raises NotReady while one of them is stored as a job.
        """
        return self._change_workflow(workflow, "retry", node)

    def skip_node(self, workflow: Workflow | str, *, node: int) -> None:
        """Skip a node that waits, is dead or was cancelled. Raises NotReady for others."""
        self._change_workflow(workflow, "skip", node)

    def _change_workflow(self, workflow: Workflow | str, what: WorkflowChange, node: int | None) -> int:
        self._check_open(f"{what} of a workflow")
        workflow_id = workflow if isinstance(workflow, str) else workflow.id
        with self._memory.lock:
            answer = self._memory.workflows.change(workflow_id, what, -1 if node is None else node)
        if answer.answer != "done":
            why = {
                "busy": "a node is stored as a job: run it first, or cancel it and drain()",
                "ended": "the state of the node does not allow it",
                "gone": "it has no such node",
            }[answer.answer]
            raise NotReady(f"{what} of the workflow {workflow_id}: {why}")
        return answer.changed

    # What jobs reported while they ran.

    def checkins(self, job: Job | str) -> list[Checkin]:
        """The check-ins of a job that ran, of all its attempts in order: (text, done, total)."""
        return list(self._stage.checkins.get(job if isinstance(job, str) else job.id, ()))

    def assert_checked_in(
        self,
        job: Job | str,
        text: str | None = None,
        *,
        done: float | None = None,
        total: float | None = None,
    ) -> None:
        """Raise AssertionError unless the job has checked in with these values; what is not given may be anything."""
        __tracebackhide__ = True
        found = self.checkins(job)
        wanted = (text, done, total)
        if not any(
            all(one in (None, was) for one, was in zip(wanted, checkin, strict=True)) for checkin in found
        ):
            listed = (
                "\n".join(f"    {one!r}, done={at!r}, total={of!r}" for one, at, of in found) or "    none"
            )
            raise AssertionError(
                f"{job!r} has no check-in with text={text!r}, done={done!r}, total={total!r}. "
                f"Its check-ins:\n{listed}"
            )

    def _attempt(self, job: Job | str, stop: StopReason | None = None, stop_after: int = 1) -> ProbedAttempt:
        self._check_open("run()")
        if stop not in (None, *get_args(StopReason)) or stop_after < 1:
            raise BadOption(
                f"run(stop={stop!r}, stop_after={stop_after!r}): give 'shutdown', 'cancelled', 'timeout' or 'lost', "
                "and the number of a check-in from 1 on"
            )
        attempt = self._stage.take(job if isinstance(job, str) else job.id)
        if attempt is None:
            raise NotReady(
                f"run(): {job!r} does not wait here: it ended, or was never enqueued in this block, "
                "or this pool has no handler for it"
            )
        attempt.stop, attempt.stop_after = stop, stop_after
        return attempt

    def _check_open(self, what: str) -> None:
        if not self._stage.open:
            raise NotReady(f"{what}: call it inside the block: with testing(pool) as jobs: ...")
        if self._stage.pool is None:
            raise NotReady(f"{what}: there are no handlers here; to run jobs, write testing(pool, enqueuer)")

    # Names and words.

    def _jobs(self, kept: Sequence[MemoryEntry]) -> list[Job]:
        with self._memory.lock:
            return [one.job() for one in kept]

    def _type(self, name: str) -> AnyJobType | None:
        """The job type of that name; None where its enqueuer need not know one. Raises UnknownJob."""
        pool = self._stage.pool
        if pool is None:
            return None
        try:
            return pool.find(name)
        except UnknownJob:
            if all(builder._find is not None for builder in self._builders):
                raise
            return None

    def _name(self, name: str | AnyJobType) -> str:
        name = name if isinstance(name, str) else name.name
        # A name that is wrong would never be enqueued, and a test that it was not would always pass.
        self._type(name)
        return name

    def _matching(self, name: str | AnyJobType, args: Mapping[str, Any]) -> list[Job]:
        job_type = self._type(self._name(name))
        if job_type is not None:
            match.check(job_type, args)
        return [job for job in self.enqueued(name) if match.matches(job, args, job_type)]

    def _report(self, name: str | AnyJobType, args: Mapping[str, Any], what: str) -> str:
        name = self._name(name)
        # Those of that name first: one of them is likely the one that was meant.
        jobs = sorted(self.enqueued(), key=lambda job: job.name != name)
        listed = match.listing([(job, self._type(job.name)) for job in jobs], self.clock.now())
        waiting = [(job, self._type(job.name)) for job in self._stage.deferred()]
        deferred = match.deferred(waiting, self.clock.now())
        return f"{match.shown(name, args, self._type(name))} {what}. {listed}{deferred}"
