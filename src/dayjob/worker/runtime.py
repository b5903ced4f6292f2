"""Runtime: builds, starts and stops everything that a running pool consists of. Each start builds a new one."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from dayjob.errors import NotReady, Rejected, StoreError, Unavailable
from dayjob.handlers.describe import describe
from dayjob.handlers.registry import JobType
from dayjob.job import Job
from dayjob.middleware import compose_async, compose_sync
from dayjob.pool import WorkerPool
from dayjob.safe_logging import SafeLogger, restore_loggers
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import SLOWEST_BYTES_PER_SECOND, Link
from dayjob.store.ops import consume, health, inspect
from dayjob.text import counted
from dayjob.worker.chores.announcer import Announcer
from dayjob.worker.chores.chores import Chores
from dayjob.worker.chores.periodic import PeriodicScheduler
from dayjob.worker.chores.reaper import Reaper
from dayjob.worker.chores.recorder import Recorder
from dayjob.worker.chores.requeuer import Requeuer
from dayjob.worker.chores.trimmer import Trimmer
from dayjob.worker.fetching.fetcher import Fetcher
from dayjob.worker.fetching.listener import WAIT_SECONDS, Listener
from dayjob.worker.green_threads import refuse_green_threads
from dayjob.worker.pool_job_type import PoolFlags, PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.event_loop import LoopExecutor
from dayjob.worker.running.report import call_hook
from dayjob.worker.running.runner import Abandon, Runner
from dayjob.worker.running.slots import Slots
from dayjob.worker.running.threads import DeadlineSink, ThreadExecutor
from dayjob.worker.running.watchdog import Watchdog
from dayjob.worker.service import Outage, Service
from dayjob.worker.shared_link import SharedLink
from dayjob.worker.status import stacks
from dayjob.worker.status.heartbeat import Heartbeat
from dayjob.worker.status.observer import Observer

logger = SafeLogger("dayjob.worker")

#: Seconds to wait for an answer from Redis. Every request of a pool is safe to send again on a new connection.
ANSWER_SECONDS = 3.0
#: Seconds that `leave`, the pool's last request, may take while Redis seems unreachable.
LEAVE_SECONDS = 0.3
#: Seconds for giving back and settling attempts once the timeout of a stop has passed.
SETTLE_SECONDS = 0.65
#: Seconds that closing may take after SETTLE_SECONDS. A stop must end at most one second after its timeout.
CLOSE_SECONDS = 0.2
#: Seconds between two checks of a condition that drain() or stop() waits for.
POLL_SECONDS = 0.01


class Runtime:
    """A running pool."""

    def __init__(
        self,
        pool: WorkerPool[Any],
        *,
        publish: Callable[[str], None] | None = None,
        board: DeadlineSink | None = None,
        tag: str = "",
        asked: Callable[[], None] | None = None,
        loop_died: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        #: Called when an operator asks the pool to stop.
        self._on_stop_request = asked or self._stop_by_itself
        self._pool = pool
        self._publish = publish or _no_parent
        #: Called with the name and the exception of a loop that died, before the pool stops.
        self._loop_died = loop_died or _ignore
        self._board = board
        self._tag = tag
        self.pid = os.getpid()
        self.outage = Outage()
        #: The exception of a loop that died. The pool then stops by itself.
        self.failure: BaseException | None = None
        self.ended = threading.Event()
        self._services: list[Service] = []
        self._exits = ExitStack()
        self._stopping = threading.Lock()
        self._hurry = threading.Event()
        #: An operator's request to stop was handled; the heartbeat repeats the request.
        self._stop_requested = False

    def start(self) -> None:
        """Build everything, register the pool and start its loops. Raises StoreError, UsageError."""
        pool = self._pool
        refuse_green_threads()
        problems = pool.registry.resolve_all()
        if problems:
            raise problems[0]
        # Jobs that are registered from here on are not part of this runtime.
        pool._built = self
        try:
            self._start(pool)
        except BaseException:
            pool._built = None
            raise

    def _start(self, pool: WorkerPool[Any]) -> None:
        address = addresses.parse_url(addresses.connect_target(addresses.resolve(None, pool=pool.redis)))
        self._keys = keys = Keys(pool.namespace)
        rng = random.Random()
        flags = PoolFlags()
        job_types = {
            one.name: PoolJobType(one, _composed(pool, one), flags, _direct(pool, one))
            for one in pool.registry
        }
        self._flags, self.job_types = flags, job_types
        link = partial(
            Link,
            address,
            tag=keys.known_jobs,
            watch=self.outage,
            timeout=ANSWER_SECONDS,
            slowest=SLOWEST_BYTES_PER_SECOND,
        )
        self._exchange_link = link(name="dayjob:exchange")
        self._bell_link = link(name="dayjob:bell", timeout=WAIT_SECONDS + 1.0)
        chores_link = link(name="dayjob:chores")
        self._shared = SharedLink(chores_link)
        self._links = (self._exchange_link, self._bell_link, chores_link)
        joined = False
        self._announcer = self._new_announcer(keys)
        try:
            self._build(keys, job_types, rng)
            self.fetcher.join()
            joined = True
            self._announcer.announce(self._shared)
            self._warn_of_eviction()
            self._enter_lifespans()
            # Lifespans are user code and may have configured logging.
            restore_loggers()
        except BaseException:
            if joined:
                self._leave()
            self._abort(time.monotonic() + CLOSE_SECONDS)
            raise
        for service in self._services:
            service.start()
        logger.info(
            "pool=%s started: %s, concurrency %d",
            self.fetcher.pool_id,
            counted(len(job_types), "job"),
            pool.options.concurrency,
        )

    def _build(self, keys: Keys, job_types: dict[str, PoolJobType], rng: random.Random) -> None:
        pool, options = self._pool, self._pool.options
        self.fetcher = fetcher = Fetcher(
            keys, self._exchange_link, job_types, options,
            rng=rng, arm=self._arm, publish=self._publish, restore=self._announcer.restore,
        )  # fmt: skip
        self.listener = Listener(
            keys, self._bell_link, list(job_types), fetcher.ring, fetcher.look_everywhere
        )
        self._runner = runner = Runner(
            keys, lambda: fetcher.pool_id, pool.context, fetcher.redis_now, rng, options.max_result
        )
        kinds = {job_type.is_async for job_type in job_types.values()}
        # A pool without async jobs may still have async lifespans.
        wants_loop = True in kinds or any(lifespan.is_async for lifespan in pool.lifespans)
        slots = Slots(options.concurrency) if len(kinds) == 2 else None
        self.threads = self.loop = None
        if False in kinds:
            limit = min(options.threads or options.concurrency, options.concurrency)
            self.threads = ThreadExecutor(
                runner.run, runner.give_up, fetcher.finish, limit=limit, slots=slots, board=self._board
            )
        if wants_loop:
            self.loop = LoopExecutor(
                runner.arun,
                runner.give_up,
                fetcher.finish,
                limit=options.concurrency,
                slots=slots,
                board=self._board,
            )
        fetcher.capacity.attach(self.threads, self.loop)
        self.observer = Observer(
            fetcher, options, sorted(job_types), lambda: self._services, self._tag, schedules=sorted(pool.periodics),
            connections=lambda: sum(link.connected for link in self._links), waited=self._shared.longest_wait,
            blocked=lambda: watchdog.blocked(),  # noqa: PLW0108 - it is built below
            async_names=sorted(name for name, job_type in job_types.items() if job_type.is_async),
            signatures=self._announcer.signatures(),
        )  # fmt: skip
        self.observer.supervised = self._board is not None
        reaper = Reaper(
            keys, self._shared, lease=options.lease, options=self._options_of, on_dead=self._on_dead, rng=rng
        )
        periodic = PeriodicScheduler(keys, self._shared, list(pool.periodics.values()), fetcher.redis_now, lambda: fetcher.leads)  # fmt: skip
        self._announcer.on_lost_schedules = periodic.look_again
        self._chores = Chores(
            keys, self._shared, fetcher,
            requeuer=Requeuer(keys, self._shared), reaper=reaper, beat=options.beat, dead_age=options.dead_age, trimmer=Trimmer(keys, self._shared, options),
            recorder=Recorder(keys, self._shared), announcer=self._announcer, periodic=periodic,
        )  # fmt: skip
        watchdog = Watchdog(
            fetcher, runner, options, threads=self.threads, loop=self.loop,
            timeouts=[job_type.options.timeout for job_type in job_types.values() if job_type.options.timeout],
        )  # fmt: skip
        wishes = {"quiet": self._go_quiet, "stop": self._obey_stop, "stacks": self._show_stacks}
        heartbeat = Heartbeat(keys, self._shared, fetcher, self.observer, options, wishes=wishes)
        service = partial(Service, died=self._died)
        self._services = [
            service("fetcher", fetcher.step),
            service("listener", self.listener.step),
            service("heartbeat", heartbeat.step),
            service("chores", self._chores.step),
            service("watchdog", watchdog.step),
        ]

    def _new_announcer(self, keys: Keys) -> Announcer:
        pool = self._pool
        schedules = [
            inspect.StoredSchedule(one.name, 0, False, one.job, one.spec, one.timezone, one.missed, one.args)
            for one in pool.periodics.values()
        ]
        wanted = {one.name: one.options.max_concurrency for one in pool.registry}
        return Announcer(keys, [describe(one) for one in pool.registry], schedules, wanted)

    def _warn_of_eviction(self) -> None:
        """Warn about a server that evicts keys: it would delete jobs without any error."""
        try:
            policy = self._shared.run(health.eviction_policy())
        except Rejected:
            # This Redis user may not read the configuration. `dayjob doctor` reports that.
            return
        if policy not in ("", "noeviction"):
            logger.warning(
                "the Redis server deletes keys when its memory is full (maxmemory-policy %s): jobs would be lost."
                " Run CONFIG SET maxmemory-policy noeviction, and set the same in the server's configuration file.",
                policy,
            )

    def _arm(self, names: Collection[str]) -> None:
        self.listener.arm(names)

    # While the pool runs.

    def quiet(self) -> None:
        """Stop fetching jobs. Running jobs continue."""
        self.observer.quiet = True
        self.fetcher.fetching = False
        self.fetcher.wake()

    # Requests of operators, called by the heartbeat.

    def _go_quiet(self) -> None:
        if not self.observer.quiet:
            logger.info("pool=%s: an operator asked this pool to stop fetching jobs", self.fetcher.pool_id)
            self.quiet()

    def _obey_stop(self) -> None:
        if not self._stop_requested:
            self._stop_requested = True
            logger.info("pool=%s: an operator asked this pool to stop", self.fetcher.pool_id)
            self._on_stop_request()

    def _stop_by_itself(self) -> None:
        # On its own thread, because the heartbeat calls this and must keep renewing the lease during the stop.
        threading.Thread(target=self.stop, name="dayjob-stop", daemon=True).start()

    def _show_stacks(self) -> None:
        text = stacks.describe(
            self.fetcher.running(), self.observer.worker_ids, self.loop, self.fetcher.redis_now()
        )
        self._shared.run(consume.stacks(self._keys, self.fetcher.pool_id, text))

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until every queue of this pool is empty, paused or at its limit, and no job runs.

        Returns False if that takes longer than `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = threading.Event()
        while True:
            seen = self.fetcher.exchanges
            self.fetcher.look_everywhere()
            while self.fetcher.exchanges == seen or self.fetcher.busy:
                if self.ended.is_set():
                    raise NotReady("the pool was stopped while drain() was waiting")
                if deadline is not None and time.monotonic() > deadline:
                    return False
                pause.wait(POLL_SECONDS)
            if self.fetcher.empty_since(seen):
                return True

    def stop(self, timeout: float = 25.0) -> None:
        """Wait up to `timeout` seconds for running jobs, then give the others back. Ends within one more second."""
        with self._stopping:
            if self.ended.is_set():
                return
            try:
                self._wind_up(time.monotonic() + max(0.0, timeout))
            finally:
                # Set even if stopping failed: a program that waits for `ended` must not wait forever.
                self.ended.set()
            logger.info("pool=%s stopped", self.fetcher.pool_id)

    def _wind_up(self, deadline: float) -> None:
        self._flags.stopping = self.observer.stopping = True
        self.quiet()
        self._log_running("waiting for")
        self._wait_for(lambda: not self.fetcher.held and not self.fetcher.unsettled, deadline)
        # Computed before _give_back, which itself takes part of this time.
        now = time.monotonic()
        last = (now if self._hurry.is_set() else max(deadline, now)) + SETTLE_SECONDS
        self._give_back()
        self.fetcher.flush()
        self._wait_for(lambda: self.fetcher.told, last, hurry=False)
        self._close(last)

    def runs(self, attempt: object) -> bool:
        """Whether `attempt` belongs to this pool."""
        return isinstance(attempt, Attempt) and attempt.job_type.flags is self._flags

    def hurry(self) -> None:
        """Make a stop that is under way give back its running jobs now."""
        self._hurry.set()

    def run(self) -> None:
        """Start, and run until a signal stops the pool. Raises SystemExit(70) when a loop died."""
        from dayjob.worker.supervisor.signals import handle  # noqa: PLC0415 - signals belong to programs, not to embedded pools

        if threading.current_thread() is not threading.main_thread():
            raise NotReady(
                "run() installs signal handlers, which only the main thread can do. "
                "Use start() and stop() in this thread."
            )
        self.start()
        try:
            with handle(self):
                # With a timeout, because on some platforms signal handlers run only between two waits.
                while not self.ended.wait(1.0):
                    pass
        finally:
            self.stop(0.0)
        if self.failure is not None:
            raise SystemExit(70)

    # Stopping.

    def _give_back(self) -> None:
        """Return all attempts that have not ended to their queues, and interrupt their handlers.

        The newest is returned first, so that the oldest ends up at the head of its queue. Outcomes that the
        handlers still produce are ignored.
        """
        running = self.fetcher.running()
        for attempt in sorted(
            self.fetcher.held.values(), key=lambda one: consume.number_in(one.token), reverse=True
        ):
            # A cancelled job must not run again, so it is not given back.
            over = self._runner.cancellation(attempt) if attempt.cancelled else attempt.back()
            self.fetcher.finish(attempt, over)
        for attempt in running:
            executor = self.loop if attempt.job_type.is_async else self.threads
            if executor is not None:
                executor.interrupt(attempt, Abandon)
        if running:
            self._wait_for(lambda: not self.fetcher.running(), time.monotonic() + 0.25, hurry=False)

    def _log_running(self, what: str) -> None:
        """Log which jobs a stop waits for."""
        now = time.monotonic()
        running = self.fetcher.running()
        if running:
            some = ", ".join(f"{one.name} ({now - one.started_at:.0f} s)" for one in running[:10])
            logger.info("pool=%s: %s %d running jobs: %s", self.fetcher.pool_id, what, len(running), some)

    def _close(self, deadline: float) -> None:
        # Read first: closing the loops below interrupts their links, which then count as failed.
        away = self.outage.away > 0
        self._chores.closing = True
        for service in self._services:
            service.stop()
        self.fetcher.close()
        self.listener.close()
        self._shared.interrupt()
        for service in self._services:
            # Repeated, because a loop may enter a blocking call just after the first interrupt.
            while not service.join(min(deadline, time.monotonic() + 0.02)) and time.monotonic() < deadline:
                self.listener.close()
                self._shared.interrupt()
        end = deadline + CLOSE_SECONDS
        if not self._services[0].join(time.monotonic()):
            self._exchange_link.retire()
            self._services[0].join(time.monotonic() + CLOSE_SECONDS / 2)
        # Tried even if Redis seems unreachable: if `leave` succeeds, other pools need not wait for the lease to end.
        left = max(0.05, end - 0.05 - time.monotonic())
        left = min(LEAVE_SECONDS, left) if away else left
        self._exchange_link.hasten(left)
        # On its own thread: opening a connection is several waits, each of which may take `left` seconds.
        leaving = threading.Thread(target=self._leave, name="dayjob-leaving", daemon=True)
        leaving.start()
        leaving.join(left)
        if leaving.is_alive():
            self._exchange_link.retire()
            leaving.join(0.02)
        self._abort(end)

    def _leave(self) -> None:
        try:
            left = self._exchange_link.run(consume.leave(self._keys, self.fetcher.pool_id))
        except StoreError as error:
            logger.warning(
                "pool=%s could not deregister (%s). Another pool removes it when its lease ends.",
                self.fetcher.pool_id,
                error,
            )
        else:
            if left:
                logger.warning(
                    "pool=%s stopped with %d unsettled attempts. Another pool puts them back into their queues.",
                    self.fetcher.pool_id,
                    left,
                )

    def _abort(self, deadline: float) -> None:
        try:
            self._exits.close()
        except Exception:  # an error in a lifespan must not keep the rest from closing
            logger.exception("a lifespan failed while the pool stopped")
        # On its own thread: a handler that blocks the event loop or ignores its cancellation must not delay the stop.
        closing = threading.Thread(target=self._close_executors, name="dayjob-closing", daemon=True)
        closing.start()
        closing.join(max(0.02, deadline - time.monotonic()))
        for link in (self._exchange_link, self._bell_link, self._shared):
            link.retire()
            # A loop that did not end in time may still use the link. That loop closes it later.
            if all(service.join(0.0) for service in self._services):
                link.close()

    def _close_executors(self) -> None:
        self._close_enqueuer()
        for executor in (getattr(self, "threads", None), getattr(self, "loop", None)):
            if executor is not None:
                executor.close()

    def _close_enqueuer(self) -> None:
        """Close the connections of the async enqueuer, which belong to the pool's event loop."""
        loop = getattr(self, "loop", None)
        enqueuer = self._pool.__dict__.get("async_enqueuer")
        if loop is not None and enqueuer is not None:
            with contextlib.suppress(TimeoutError):
                loop.submit(enqueuer.close, timeout=0.2)

    def _wait_for(self, done: Callable[[], bool], deadline: float, *, hurry: bool = True) -> bool:
        pause = threading.Event()
        while not done():
            if time.monotonic() >= deadline or (hurry and self._hurry.is_set()):
                return False
            pause.wait(POLL_SECONDS)
        return True

    def _died(self, name: str, error: BaseException) -> None:
        # Logged last, because a log handler that raises must not keep the pool from stopping.
        self.failure = error
        self._loop_died(name, error)
        threading.Thread(target=self.stop, args=(0.0,), name="dayjob-last", daemon=True).start()
        logger.critical("the %s loop died; stopping the pool", name, exc_info=error)

    # Calls of user code.

    def _enter_lifespans(self) -> None:
        for lifespan in self._pool.lifespans:
            self._exits.enter_context(self._lifespan(lifespan))

    @contextmanager
    def _lifespan(self, lifespan: Any) -> Iterator[None]:
        if not lifespan.is_async:
            with lifespan.around():
                yield
            return
        if self.loop is None:
            raise Unavailable("an async lifespan needs the event loop, and this pool has none")
        manager = lifespan.aaround()
        self.loop.submit(manager.__aenter__)
        try:
            yield
        finally:
            self.loop.submit(lambda: manager.__aexit__(None, None, None))

    def _options_of(self, name: str) -> Any:
        job_type = self.job_types.get(name)
        return None if job_type is None else job_type.options

    def _on_dead(self, job: Job, error: BaseException) -> None:
        job_type = self.job_types.get(job.name)
        if job_type is not None and job_type.options.on_dead is not None:
            job.redact = job_type.options.redact
            # On its own thread: user code must not delay the chores.
            threading.Thread(
                target=call_hook, args=(job_type.options.on_dead, job, error), daemon=True
            ).start()


def _no_parent(_pool_id: str) -> None:
    """Used where no parent process needs the pool's id."""


def _ignore(_loop: str, _error: BaseException) -> None:
    """Used where no parent process needs to know of a loop that died."""


def _composed(pool: WorkerPool[Any], job_type: JobType[..., ..., Any]) -> Callable[[Any, Any], Any]:
    """The handler of a job type wrapped in the pool's middleware. It takes a context and a job."""
    fn, call_args = job_type.fn, job_type.call_args
    context, wants_job = job_type.wants_context, job_type.wants_job

    def handler(ctx: Any, job: Any) -> Any:
        args, kwargs = call_args(job.raw_args)
        if context:
            return fn(ctx, job, *args, **kwargs) if wants_job else fn(ctx, *args, **kwargs)
        return fn(job, *args, **kwargs) if wants_job else fn(*args, **kwargs)

    async def async_handler(ctx: Any, job: Any) -> Any:
        return await handler(ctx, job)

    if job_type.is_async:
        return compose_async(pool.middlewares, async_handler)
    return compose_sync(pool.middlewares, handler)


def _direct(pool: WorkerPool[Any], job_type: JobType[..., ..., Any]) -> Callable[[Any], Any] | None:
    """A shortcut for handlers that take only their arguments. None if context, job or middleware are needed."""
    if job_type.wants_context or job_type.wants_job or pool.middlewares:
        return None
    fn, call_args = job_type.fn, job_type.call_args

    def direct(raw: Any) -> Any:
        args, kwargs = call_args(raw)
        return fn(*args, **kwargs) if kwargs else fn(*args)

    return direct
