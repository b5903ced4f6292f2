"""Runtime: everything that a started pool consists of, put together on one page. Built anew by every start."""

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

#: Seconds to wait for an answer: all that a pool asks is safe to ask again, on a new connection.
ANSWER_SECONDS = 3.0
#: Seconds that the last word to Redis may take.
LEAVE_SECONDS = 0.3
#: Seconds for giving back and settling once the time of a stop is over.
SETTLE_SECONDS = 0.65
#: Seconds that closing may take after the time to settle is over: with it a stop keeps to its deadline and a second.
CLOSE_SECONDS = 0.2
#: How often waiting for the end looks again.
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
        #: What is to be done when an operator asks the pool to stop.
        self._asked = asked or self._stop_by_itself
        self._pool = pool
        self._publish = publish or _nobody
        #: Called with the name of a loop that died, and why, before the pool stops.
        self._loop_died = loop_died or _ignore
        self._board = board
        self._tag = tag
        self.pid = os.getpid()
        self.outage = Outage()
        #: Set when a loop died; the pool stops by itself then.
        self.failure: BaseException | None = None
        self.ended = threading.Event()
        self._services: list[Service] = []
        self._exits = ExitStack()
        self._stopping = threading.Lock()
        self._hurry = threading.Event()
        #: An operator asked for its end, and was heard.
        self._wished_away = False

    def start(self) -> None:
        """Build everything, register the pool and start its loops. Raises StoreError, UsageError."""
        pool = self._pool
        refuse_green_threads()
        problems = pool.registry.resolve_all()
        if problems:
            raise problems[0]
        # From here on, what is registered is not seen any more.
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
            # They are user code, and may be where a program sets up its logging.
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
        colours = {job_type.is_async for job_type in job_types.values()}
        # Lifespans may be async where no job is.
        wants_loop = True in colours or any(lifespan.is_async for lifespan in pool.lifespans)
        slots = Slots(options.concurrency) if len(colours) == 2 else None
        self.threads = self.loop = None
        if False in colours:
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
        """A server that evicts keys loses jobs, and nobody notices before they are missed."""
        try:
            policy = self._shared.run(health.eviction_policy())
        except Rejected:
            # This user may not read it; `dayjob doctor` says so.
            return
        if policy not in ("", "noeviction"):
            logger.warning(
                "the server deletes keys when it is full (maxmemory-policy %s): jobs would be lost."
                " Set maxmemory-policy to noeviction: CONFIG SET maxmemory-policy noeviction, and the same in its"
                " configuration file",
                policy,
            )

    def _arm(self, names: Collection[str]) -> None:
        self.listener.arm(names)

    # While it runs.

    def quiet(self) -> None:
        """Fetch nothing more; what runs goes on."""
        self.observer.quiet = True
        self.fetcher.fetching = False
        self.fetcher.wake()

    # What operators wish, called by the heartbeat.

    def _go_quiet(self) -> None:
        if not self.observer.quiet:
            logger.info("pool=%s: an operator asked it to fetch nothing more", self.fetcher.pool_id)
            self.quiet()

    def _obey_stop(self) -> None:
        if not self._wished_away:
            self._wished_away = True
            logger.info("pool=%s: an operator asked it to stop", self.fetcher.pool_id)
            self._asked()

    def _stop_by_itself(self) -> None:
        # On a thread of its own: the heart goes on beating while what runs winds up.
        threading.Thread(target=self.stop, name="dayjob-stop", daemon=True).start()

    def _show_stacks(self) -> None:
        text = stacks.describe(
            self.fetcher.running(), self.observer.worker_ids, self.loop, self.fetcher.redis_now()
        )
        self._shared.run(consume.stacks(self._keys, self.fetcher.pool_id, text))

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until every queue of this pool is empty, paused or at its limit, and nothing runs; false in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = threading.Event()
        while True:
            seen = self.fetcher.exchanges
            self.fetcher.look_everywhere()
            while self.fetcher.exchanges == seen or self.fetcher.busy:
                if self.ended.is_set():
                    raise NotReady("the pool stopped while it was draining")
                if deadline is not None and time.monotonic() > deadline:
                    return False
                pause.wait(POLL_SECONDS)
            if self.fetcher.empty_since(seen):
                return True

    def stop(self, timeout: float = 25.0) -> None:
        """Stop within `timeout` seconds and one more: wait for what runs, then give back what does not end."""
        with self._stopping:
            if self.ended.is_set():
                return
            try:
                self._wind_up(time.monotonic() + max(0.0, timeout))
            finally:
                # Whatever failed on the way: a program that waits for the end must not wait for ever.
                self.ended.set()
            logger.info("pool=%s stopped", self.fetcher.pool_id)

    def _wind_up(self, deadline: float) -> None:
        self._flags.stopping = self.observer.stopping = True
        self.quiet()
        self._tell_running("waiting for")
        self._wait_for(lambda: not self.fetcher.held and not self.fetcher.unsettled, deadline)
        # Counted from before anything is given back: that takes a moment of its own.
        now = time.monotonic()
        last = (now if self._hurry.is_set() else max(deadline, now)) + SETTLE_SECONDS
        self._give_back()
        self.fetcher.flush()
        self._wait_for(lambda: self.fetcher.told, last, hurry=False)
        self._close(last)

    def runs(self, attempt: object) -> bool:
        """Whether this is one of our attempts."""
        return isinstance(attempt, Attempt) and attempt.job_type.flags is self._flags

    def hurry(self) -> None:
        """End a stop that is under way now: give back what runs."""
        self._hurry.set()

    def run(self) -> None:
        """Start, and work until a signal says stop. Raises SystemExit(70) when a loop died."""
        from dayjob.worker.supervisor.signals import handle  # noqa: PLC0415 - signals belong to programs, not to embedded pools

        if threading.current_thread() is not threading.main_thread():
            raise NotReady(
                "run() handles signals, which only the main thread can: use start() and stop() here"
            )
        self.start()
        try:
            with handle(self):
                # In slices: a signal handler runs between them on every platform.
                while not self.ended.wait(1.0):
                    pass
        finally:
            self.stop(0.0)
        if self.failure is not None:
            raise SystemExit(70)

    # The end.

    def _give_back(self) -> None:
        """What has not ended by now goes back to its queue, the newest first so that the oldest is at its head.

        The handlers are told; what they still say is dropped.
        """
        running = self.fetcher.running()
        for attempt in sorted(
            self.fetcher.held.values(), key=lambda one: consume.number_in(one.token), reverse=True
        ):
            # One that was cancelled is over; given back it would run again.
            over = self._runner.cancellation(attempt) if attempt.cancelled else [attempt.back()]
            self.fetcher.finish(attempt, over)
        for attempt in running:
            executor = self.loop if attempt.job_type.is_async else self.threads
            if executor is not None:
                executor.interrupt(attempt, Abandon)
        if running:
            self._wait_for(lambda: not self.fetcher.running(), time.monotonic() + 0.25, hurry=False)

    def _tell_running(self, what: str) -> None:
        """Say which jobs a stop is about."""
        now = time.monotonic()
        running = self.fetcher.running()
        if running:
            some = ", ".join(f"{one.name} ({now - one.started_at:.0f} s)" for one in running[:10])
            logger.info("pool=%s: %s %d: %s", self.fetcher.pool_id, what, len(running), some)

    def _close(self, deadline: float) -> None:
        # Asked now: ending the loops below looks like an outage to their links.
        away = self.outage.away > 0
        self._chores.closing = True
        for service in self._services:
            service.stop()
        self.fetcher.close()
        self.listener.close()
        self._shared.interrupt()
        for service in self._services:
            # Again and again: a loop may be on its way into a blocking call when the first shout comes.
            while not service.join(min(deadline, time.monotonic() + 0.02)) and time.monotonic() < deadline:
                self.listener.close()
                self._shared.interrupt()
        end = deadline + CLOSE_SECONDS
        if not self._services[0].join(time.monotonic()):
            self._exchange_link.retire()
            self._services[0].join(time.monotonic() + CLOSE_SECONDS / 2)
        # Said even when Redis seems to be away: it may be back, and a pool that is told of is not missed.
        left = max(0.05, end - 0.05 - time.monotonic())
        left = min(LEAVE_SECONDS, left) if away else left
        self._exchange_link.hasten(left)
        # On a thread of its own: a new connection is several waits, each of which may take that long.
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
            logger.warning("pool=%s could not leave (%s); its lease will end", self.fetcher.pool_id, error)
        else:
            if left:
                logger.warning(
                    "pool=%s left %d attempts behind; they are rescued", self.fetcher.pool_id, left
                )

    def _abort(self, deadline: float) -> None:
        try:
            self._exits.close()
        except Exception:  # a lifespan that fails at the end must not keep the rest from closing
            logger.exception("a lifespan failed at the end")
        # On a thread of its own: a handler that blocks the loop, or will not be cancelled, must not hold up the end.
        closing = threading.Thread(target=self._close_executors, name="dayjob-closing", daemon=True)
        closing.start()
        closing.join(max(0.02, deadline - time.monotonic()))
        for link in (self._exchange_link, self._bell_link, self._shared):
            link.retire()
            # A loop that did not end in time may still be using it; it closes it when it notices.
            if all(service.join(0.0) for service in self._services):
                link.close()

    def _close_executors(self) -> None:
        self._close_enqueuer()
        for executor in (getattr(self, "threads", None), getattr(self, "loop", None)):
            if executor is not None:
                executor.close()

    def _close_enqueuer(self) -> None:
        """The connections that async handlers enqueued over belong to our loop and end with it."""
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
        # The log line comes last: nothing that fails there may keep the pool from stopping.
        self.failure = error
        self._loop_died(name, error)
        threading.Thread(target=self.stop, args=(0.0,), name="dayjob-last", daemon=True).start()
        logger.critical("the %s loop died; stopping the pool", name, exc_info=error)

    # What user code is called for.

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
            raise Unavailable("no loop for an async lifespan")
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
            # On a thread of its own: user code must not hold up the chores.
            threading.Thread(
                target=Runner._hook, args=(job_type.options.on_dead, job, error), daemon=True
            ).start()


def _nobody(_pool_id: str) -> None:
    """There is no parent to tell."""


def _ignore(_loop: str, _error: BaseException) -> None:
    """There is no parent that must learn of it."""


def _composed(pool: WorkerPool[Any], job_type: JobType[..., ..., Any]) -> Callable[[Any, Any], Any]:
    """The handler of a job type, taking context and job, with the pool's middleware around it."""
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
    """The shortest way to a handler that asks for its arguments only; None where there is more to do."""
    if job_type.wants_context or job_type.wants_job or pool.middlewares:
        return None
    fn, call_args = job_type.fn, job_type.call_args

    def direct(raw: Any) -> Any:
        args, kwargs = call_args(raw)
        return fn(*args, **kwargs) if kwargs else fn(*args)

    return direct
