"""Runtime: builds, starts and stops everything that a running pool consists of. Each start builds a new one."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from dayjob.errors import NotReady, Rejected
from dayjob.handlers.describe import describe
from dayjob.job import Job
from dayjob.pool import WorkerPool
from dayjob.safe_logging import SafeLogger, restore_loggers
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import walk
from dayjob.store.ops import health, inspect, membership
from dayjob.store.ops.gocraft import gocraft_pools
from dayjob.store.urls import parse_url
from dayjob.text import counted, listed
from dayjob.worker.chores.announcer import Announcer
from dayjob.worker.chores.chores import Chores
from dayjob.worker.chores.due_bell import DueBell
from dayjob.worker.chores.keys import KeyRepairer
from dayjob.worker.chores.periodic import PeriodicScheduler
from dayjob.worker.chores.reaper import Reaper
from dayjob.worker.chores.recorder import Recorder
from dayjob.worker.chores.releaser import Releaser
from dayjob.worker.chores.requeuer import Requeuer
from dayjob.worker.chores.trimmer import Trimmer
from dayjob.worker.chores.watcher import Watcher
from dayjob.worker.fetching.fetcher import Fetcher
from dayjob.worker.fetching.listener import Listener
from dayjob.worker.green_threads import refuse_green_threads
from dayjob.worker.lifespans import Lifespans
from dayjob.worker.membership import Membership
from dayjob.worker.pool_links import PoolLinks
from dayjob.worker.running import attempt_log
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.event_loop import LoopExecutor
from dayjob.worker.running.executors import Executors
from dayjob.worker.running.handler import new_pool_job_type
from dayjob.worker.running.report import call_hooks
from dayjob.worker.running.runner import Runner
from dayjob.worker.running.slots import Slots
from dayjob.worker.running.threads import DeadlineSink, ThreadExecutor
from dayjob.worker.running.watchdog import Watchdog
from dayjob.worker.service import Outage, Service
from dayjob.worker.shutdown import CLOSE_SECONDS, POLL_SECONDS, Shutdown
from dayjob.worker.state import PoolState
from dayjob.worker.status import stacks
from dayjob.worker.status.heartbeat import Heartbeat
from dayjob.worker.status.observer import Observer

logger = SafeLogger("dayjob.worker")


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
        #: The version of the program: what the command line gives, or else the pool.
        self._tag = tag or pool.options.tag
        self.pid = os.getpid()
        self.outage = Outage()
        self.state = PoolState()
        self.state.tag = self._tag
        #: The exception of a loop that died. The pool then stops by itself.
        self.failure: BaseException | None = None
        self.ended = threading.Event()
        #: Whether attempts of this pool keep their log lines.
        self._keeps_logs = False
        self._stop_lock = threading.Lock()
        #: An operator's request to stop was handled; the heartbeat repeats the request.
        self._stop_requested = False

    # Start.

    def start(self) -> None:
        """Build everything, register the pool and start its loops. Raises StoreError, UsageError."""
        self._prepare()
        self._start_loops()

    def _prepare(self) -> None:
        """Do all of a start that comes before the first job."""
        pool = self._pool
        refuse_green_threads()
        problems = pool.registry.resolve_all()
        if problems:
            raise problems[0]
        # Jobs that are registered from here on are not part of this runtime.
        pool._built = self
        try:
            self._register()
        except BaseException:
            pool._built = None
            raise

    def _register(self) -> None:
        """Build everything, register the pool and enter its lifespans. Closes what it opened if it fails."""
        pool, state = self._pool, self.state
        self._build()
        joined = False
        try:
            self._build_executors()
            self._build_services()
            self.fetcher.join()
            joined = True
            self._announcer.announce(self.links.shared, state.pool_id)
            self._warn_of_eviction()
            self._warn_of_gocraft()
            self._lifespans.enter(pool.lifespans, self.loop)
            # Lifespans are user code and may have configured logging.
            restore_loggers()
            if any(one.options.keep_logs for one in self.job_types.values()):
                attempt_log.installation.install()
                self._keeps_logs = True
        except BaseException:
            if joined:
                self._membership.leave()
            self._shutdown.close(time.monotonic() + CLOSE_SECONDS)
            raise

    def _start_loops(self) -> None:
        """Start the loops, the first of which fetches jobs. A stop that is asked for meanwhile waits until all have started."""
        with self._stop_lock:
            for service in self._services:
                service.start()
        jobs = counted(len(self.job_types), "job")
        logger.info(
            "pool=%s started: %s, concurrency %d", self.state.pool_id, jobs, self._pool.options.concurrency
        )

    # Build.

    def _build(self) -> None:
        """Build the parts that fetch and run jobs. Starts no thread and opens no connection."""
        pool, options, state = self._pool, self._pool.options, self.state
        address = parse_url(addresses.connect_target(addresses.resolve(None, pool=pool.redis)))
        self._keys = keys = Keys(pool.namespace)
        self._rng = rng = random.Random()
        self.job_types = job_types = {one.name: new_pool_job_type(pool, one, state) for one in pool.registry}
        self.links = links = PoolLinks(address, keys, self.outage)
        self._announcer = self._new_announcer()
        self._membership = Membership(
            keys, links.exchange, state, list(job_types),
            tag=self._tag, lease=options.lease, publish=self._publish, restore=self._announcer.restore,
        )  # fmt: skip
        self._executors = Executors(job_types, options.concurrency)
        self.fetcher = Fetcher(
            keys, links.exchange, job_types, state,
            executors=self._executors, membership=self._membership, lease=options.lease, rng=rng,
            arm=self._arm,
        )  # fmt: skip
        self._due = DueBell(keys, links.shared, beat=options.beat)
        self.listener = Listener(
            keys, links.bell, list(job_types), self.fetcher.ring, self.fetcher.ask_for_all,
            state=state, due=self._due,
        )  # fmt: skip
        self._runner = Runner(
            keys, lambda: state.pool_id, pool.context, state.clock.now, rng, options.max_result
        )
        self._lifespans = Lifespans()
        self._services: list[Service] = []
        self._shutdown = Shutdown(
            state, links=links, outage=self.outage, membership=self._membership, fetcher=self.fetcher,
            runner=self._runner, executors=self._executors, lifespans=self._lifespans, services=self._services,
            interrupt_loops=self._interrupt_loops, close_enqueuer=self._close_enqueuer,
        )  # fmt: skip
        self.threads: ThreadExecutor | None = None
        self.loop: LoopExecutor | None = None

    def _build_executors(self) -> None:
        """Build the executors that this pool needs: threads, an event loop, or both with shared slots."""
        options, runner = self._pool.options, self._runner
        finish = self.fetcher.finish
        kinds = {job_type.is_async for job_type in self.job_types.values()}
        slots = Slots(options.concurrency) if len(kinds) == 2 else None
        shared: dict[str, Any] = {"on_room": self.fetcher.wake, "slots": slots, "board": self._board}
        if False in kinds:
            limit = min(options.threads or options.concurrency, options.concurrency)
            self.threads = ThreadExecutor(runner.run, runner.give_up, finish, limit=limit, **shared)
        # A pool without async jobs may still have async lifespans.
        if True in kinds or any(lifespan.is_async for lifespan in self._pool.lifespans):
            limit = options.concurrency
            self.loop = LoopExecutor(runner.arun, runner.give_up, finish, limit=limit, **shared)
        self._executors.attach(self.threads, self.loop)

    def _build_services(self) -> None:
        """Build the loops of the pool: each is a role's step on its own thread."""
        keys, shared, options, state = self._keys, self.links.shared, self._pool.options, self.state
        timeouts = [one.options.timeout for one in self.job_types.values() if one.options.timeout]
        watchdog = Watchdog(
            self._runner,
            self.fetcher.finish,
            options,
            wake_fetcher=self.fetcher.wake,
            threads=self.threads,
            loop=self.loop,
            timeouts=timeouts,
        )
        self._observer = self._new_observer(watchdog)
        requests = {
            "quiet": self._go_quiet, "resume": self._end_quiet, "stop": self._stop_once,
            "stacks": self._publish_stacks,
        }  # fmt: skip
        heartbeat = Heartbeat(
            keys, shared, state, self._observer, options,
            on_refusal=self.fetcher.refuse, operator_requests=requests,
        )  # fmt: skip
        self._chores = self._new_chores()
        steps: dict[str, Callable[[], float | None]] = {
            "fetcher": self.fetcher.step,
            "listener": self.listener.step,
            "heartbeat": heartbeat.step,
            "chores": self._chores.step,
            "watchdog": watchdog.step,
        }
        outbox = self._pool.outbox
        if outbox is not None:
            steps["relay"] = outbox.relay_step(self._pool)
        self._services += [Service(name, step, died=self._died) for name, step in steps.items()]

    def _new_chores(self) -> Chores:
        keys, shared, options, state = self._keys, self.links.shared, self._pool.options, self.state
        periodics = list(self._pool.periodics.values())
        periodic = PeriodicScheduler(keys, shared, periodics, state.clock.now, lambda: state.leads)
        self._announcer.on_lost_schedules = periodic.look_again
        reaper = Reaper(
            keys, shared, lease=options.lease, options=self._options_of, on_dead=self._on_dead, rng=self._rng
        )
        return Chores(
            keys, shared, state,
            requeuer=Requeuer(keys, shared), releaser=Releaser(keys, shared), reaper=reaper, periodic=periodic,
            trimmer=Trimmer(keys, shared, options), recorder=Recorder(keys, shared), watcher=Watcher(keys, shared),
            announcer=self._announcer, key_repairer=KeyRepairer(keys, shared), due=self._due, lease=options.lease,
            dead_age=options.dead_age,
        )  # fmt: skip

    def _new_observer(self, watchdog: Watchdog) -> Observer:
        names = sorted(self.job_types)
        return Observer(
            self.state, self._executors, self._pool.options, names, lambda: self._services, self._tag,
            schedules=sorted(self._pool.periodics), connections=lambda: self.links.connected,
            waited=self.links.shared.longest_wait, blocked=watchdog.blocked,
            async_names=[name for name in names if self.job_types[name].is_async],
            signatures=self._announcer.signatures(), supervised=self._board is not None,
        )  # fmt: skip

    def _new_announcer(self) -> Announcer:
        pool = self._pool
        schedules = [
            inspect.StoredSchedule(one.name, 0, False, one.job, one.spec, one.timezone, one.missed, one.args)
            for one in pool.periodics.values()
        ]
        wanted = {one.name: one.options.max_concurrency for one in pool.registry}
        described = [
            msgspec.structs.replace(describe(one), history_count=caps.count, history_age=caps.seconds)
            for one in pool.registry
            for caps in (self.job_types[one.name].history,)
        ]
        rated = {one.name: one.options for one in pool.registry}
        return Announcer(self._keys, described, schedules, wanted, rated, self._tag)

    def _warn_of_eviction(self) -> None:
        """Warn about a server that evicts keys: it would delete jobs without any error."""
        try:
            policy = self.links.shared.run(health.eviction_policy())
        except Rejected:
            # This Redis user may not read the configuration. `dayjob doctor` reports that.
            return
        if policy not in ("", "noeviction"):
            logger.warning(
                "the Redis server deletes keys when its memory is full (maxmemory-policy %s): jobs would be lost."
                " Run CONFIG SET maxmemory-policy noeviction, and set the same in the server's configuration file.",
                policy,
            )

    def _warn_of_gocraft(self) -> None:
        """Warn about worker pools of gocraft/work that run names with limits: they obey none of these."""
        limited = {
            one.name
            for one in self._pool.registry
            if one.options.max_concurrency or one.options.limits or one.options.fair_by
        }
        if not limited:
            return
        try:
            found = walk(self.links.shared, gocraft_pools(self._keys, self.state.clock.now()))
        except Rejected:
            # Another program wrote this key, or this Redis user may not read it. `dayjob doctor` reports that.
            return
        for one in found:
            if names := sorted(limited.intersection(one.names)):
                logger.warning(
                    "a worker pool of gocraft/work (%s) runs %s too. It obeys no limit and no key of dayjob.",
                    one.place,
                    listed(names),
                )

    # While the pool runs.

    def quiet(self) -> None:
        """Stop fetching jobs. Running jobs continue."""
        self.state.quiet = True
        self.fetcher.wake()

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until every queue of this pool is empty, paused or at its limit, and no job runs.

        Returns False if that takes longer than `timeout` seconds.
        """
        state, fetcher = self.state, self.fetcher
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = threading.Event()
        while True:
            fetched, exchanges = state.fetched, state.exchanges
            fetcher.ask_for_all()
            while state.exchanges == exchanges or fetcher.busy:
                if self.ended.is_set():
                    raise NotReady("the pool was stopped while drain() was waiting")
                if deadline is not None and time.monotonic() > deadline:
                    return False
                pause.wait(POLL_SECONDS)
            if state.fetched == fetched:
                return True

    def runs(self, attempt: object) -> bool:
        """Whether `attempt` belongs to this pool."""
        return isinstance(attempt, Attempt) and attempt.job_type.pool is self.state

    def run(self) -> None:
        """Start, and run until a signal stops the pool. Raises SystemExit(70) when a loop died."""
        from dayjob.worker.supervisor.signals import handle  # noqa: PLC0415 - signals belong to programs, not to embedded pools

        if threading.current_thread() is not threading.main_thread():
            raise NotReady(
                "run() installs signal handlers, which only the main thread can do. "
                "Use start() and stop() in this thread."
            )
        # Until here signals have their usual action: the process holds no jobs yet.
        self._prepare()
        try:
            with handle(self):
                self._start_loops()
                # With a timeout, because on some platforms signal handlers run only between two waits.
                while not self.ended.wait(1.0):
                    pass
        finally:
            self.stop(0.0)
        if self.failure is not None:
            raise SystemExit(70)

    # Stop.

    def stop(self, timeout: float = 25.0) -> None:
        """Wait up to `timeout` seconds for running jobs, then give the others back. Ends within one more second."""
        with self._stop_lock:
            if self.ended.is_set():
                return
            try:
                self._shutdown.run(time.monotonic() + max(0.0, timeout))
            finally:
                if self._keeps_logs:
                    attempt_log.installation.remove()
                # Set even if stopping failed: a program that waits for `ended` must not wait forever.
                self.ended.set()
            logger.info("pool=%s stopped", self.state.pool_id)

    def hurry(self) -> None:
        """Make a stop that is under way give back its running jobs now."""
        self._shutdown.hurry()

    def _interrupt_loops(self) -> None:
        """End the waits of the loops."""
        self._chores.closing = True
        self._due.close()
        self.fetcher.close()
        self.listener.close()
        self.links.shared.interrupt()

    def _close_enqueuer(self) -> None:
        """Close the connections of the async enqueuer, which belong to the pool's event loop."""
        enqueuer = self._pool.__dict__.get("async_enqueuer")
        if self.loop is not None and enqueuer is not None:
            with contextlib.suppress(TimeoutError):
                self.loop.submit(enqueuer.close, timeout=0.2)

    def _stop_by_itself(self) -> None:
        # On its own thread, because the heartbeat calls this and must keep renewing the lease during the stop.
        threading.Thread(target=self.stop, name="dayjob-stop", daemon=True).start()

    def _died(self, name: str, error: BaseException) -> None:
        # Logged last, because a log handler that raises must not keep the pool from stopping.
        self.failure = error
        self._loop_died(name, error)
        threading.Thread(target=self.stop, args=(0.0,), name="dayjob-last", daemon=True).start()
        logger.critical("the %s loop died; stopping the pool", name, exc_info=error)

    # Requests of operators, called by the heartbeat.

    def _go_quiet(self) -> None:
        if not self.state.quiet:
            logger.info("pool=%s: an operator asked this pool to stop fetching jobs", self.state.pool_id)
            self.quiet()

    def _end_quiet(self) -> None:
        if self.state.quiet and not self.state.stopping:
            logger.info("pool=%s: an operator asked this pool to fetch jobs again", self.state.pool_id)
            self.state.quiet = False
            self.fetcher.ask_for_all()
        # Removed, so that a signal can make the pool quiet again. If that fails, the next beat brings the request again.
        self.links.shared.run(membership.drop_request(self._keys, self.state.pool_id, "resume"))

    def _stop_once(self) -> None:
        if not self._stop_requested:
            self._stop_requested = True
            logger.info("pool=%s: an operator asked this pool to stop", self.state.pool_id)
            self._on_stop_request()

    def _publish_stacks(self) -> None:
        running, now = self._executors.running(), self.state.clock.now()
        text = stacks.describe(running, self._observer.worker_ids, self.loop, now)
        self.links.shared.run(membership.stacks(self._keys, self.state.pool_id, text))

    # Called by other roles.

    def _arm(self, names: Collection[str]) -> None:
        self.listener.arm(names)

    def _options_of(self, name: str) -> Any:
        job_type = self.job_types.get(name)
        return None if job_type is None else job_type.options

    def _on_dead(self, job: Job, error: BaseException) -> None:
        job_type = self.job_types.get(job.name)
        if job_type is not None and job_type.hooks.dead:
            job.redact = job_type.options.redact
            # On its own thread: user code must not delay the chores.
            threading.Thread(target=call_hooks, args=(job_type.hooks.dead, job, error), daemon=True).start()


def _no_parent(_pool_id: str) -> None:
    """Used where no parent process needs the pool's id."""


def _ignore(_loop: str, _error: BaseException) -> None:
    """Used where no parent process needs to know of a loop that died."""
