"""Child: one supervised process, a pool that its parent watches. Stops and gives back when the parent is gone."""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from dayjob.errors import DayjobError, StoreError, Unavailable
from dayjob.options import PoolOptions
from dayjob.pool import WorkerPool
from dayjob.safe_logging import SafeLogger, restore_loggers
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from dayjob.worker.green_threads import refuse_green_threads
from dayjob.worker.runtime import Runtime
from dayjob.worker.service import Outage
from dayjob.worker.status.observer import resident
from dayjob.worker.supervisor.channel import (
    Asked,
    Away,
    Back,
    Config,
    Ended,
    Failed,
    Filed,
    Hello,
    Hurry,
    LoopDied,
    ParentChannel,
    Published,
    Quiet,
    Report,
    Started,
    Stop,
)
from dayjob.worker.supervisor.deadlines import DeadlineBoard
from dayjob.worker.supervisor.signals import handle

logger = SafeLogger("dayjob.worker")

#: Exit codes: a mistake in the program, Redis unavailable, a loop died.
MISTAKE, UNAVAILABLE, INTERNAL = 2, 69, 70
#: Seconds between two looks whether Redis is there.
REDIS_CHECK_SECONDS = 0.5


class ToldOutage(Outage):
    """Tells the parent when Redis goes and comes back: it speaks for all its children, once."""

    def __init__(self, line: ParentChannel) -> None:
        super().__init__()
        self._line = line

    def _tell_away(self, error: StoreError, now: float) -> None:
        if self._told is None:
            self._told = now
            self._line.send(Away(str(error)))

    def _tell_back(self, now: float) -> None:  # noqa: ARG002 - the parent has a clock of its own
        if self._told is not None:
            self._line.send(Back())
        self._told = None


class Child:
    """The life of one supervised process: load, start, work, stop."""

    def __init__(
        self,
        line: ParentChannel,
        board_fd: int,
        find: Callable[[str], WorkerPool[Any]],
        set_up: Callable[..., None],
    ) -> None:
        self._line = line
        self._board_fd = board_fd
        self._find = find
        self._set_up = set_up
        self._config: Config | None = None
        self._told = threading.Event()
        self._outage = ToldOutage(line)
        self._lock = threading.Lock()
        self._loaded = False
        self._runtime: Runtime | None = None
        self._quiet = False
        #: Who named the server.
        self._origin = ""
        #: Seconds within which to stop, once that was asked for.
        self._within: float | None = None
        threading.Thread(target=self._watch, name="dayjob-parent", daemon=True).start()

    def run(self) -> int:
        """Live; the answer is the exit code."""
        self._told.wait()
        config = self._config
        if config is None:
            return 0
        try:
            pool = self._load(config)
            # While it loads a TERM simply ends the process: nothing is held yet.
            with handle(self, timeout=config.timeout, supervised=True):
                self._loaded = True
                return self._work(pool, config)
        except DayjobError as error:
            self._line.send(self._failure(error))
            return UNAVAILABLE if isinstance(error, StoreError) else MISTAKE

    def stop(self, timeout: float = 25.0) -> None:
        """Stop within `timeout` seconds; at once while nothing has started."""
        if not self._loaded:
            os._exit(0)
        with self._lock:
            if self._within is not None:
                return
            self._within = timeout
            runtime = self._runtime
        if runtime is not None:
            runtime.stop(timeout)

    def _asked(self, timeout: float) -> None:
        """An operator wants this one to stop. The parent hears it first, or it would start another."""
        if self._within is None:
            self._line.send(Asked())
            threading.Thread(target=self.stop, args=(timeout,), name="dayjob-stop", daemon=True).start()

    def _loop_died(self, loop: str, error: BaseException) -> None:
        """Have the parent let the lease end, and kill this process should it not end by itself."""
        self._line.send(LoopDied(loop, type(error).__name__))

    def hurry(self) -> None:
        """Give back now."""
        if self._runtime is not None:
            self._runtime.hurry()

    def quiet(self) -> None:
        """Fetch nothing more."""
        self._quiet = True
        if self._runtime is not None:
            self._runtime.quiet()

    def _watch(self) -> None:
        """Do what the parent says. A cut line means that it is dead."""
        timeout = 0.0
        while not self._line.cut:
            for message in self._line.receive(wait=True):
                if isinstance(message, Config):
                    self._config, timeout = message, message.timeout
                    self._told.set()
                elif isinstance(message, Stop):
                    # On a thread of its own: the next message may be to hurry.
                    threading.Thread(target=self.stop, args=(message.timeout,), daemon=True).start()
                elif isinstance(message, Hurry):
                    self.hurry()
                elif isinstance(message, Quiet):
                    self.quiet()
        self._told.set()
        if self._within is None:
            logger.error("the parent is gone: stopping within %.0f s", timeout)
        self.stop(timeout)

    def _load(self, config: Config) -> WorkerPool[Any]:
        # In the environment, which comes before the pool: for all that this process connects, the enqueuers that user
        # code makes included.
        if config.redis is not None:
            os.environ["DAYJOB_REDIS_URL"] = config.redis
        if config.namespace is not None:
            os.environ["DAYJOB_NAMESPACE"] = config.namespace
        try:
            pool = self._find(config.pool)
        finally:
            # A program that patches threads while it is imported may fail there for that very reason.
            refuse_green_threads()
        self._take_filed(pool, config.filed)
        # After the import, so that a program that sets up logging itself is left alone.
        self._set_up(form=config.log_format, warnings_only=config.warnings_only)
        restore_loggers()
        given = {"concurrency": config.concurrency, "threads": config.threads}
        changes = {key: value for key, value in given.items() if value is not None}
        for key in ("concurrency", "threads"):
            filed = getattr(config.filed, key)
            if filed is not None and key not in pool.named_options:
                changes.setdefault(key, filed)
        if changes:
            pool.options = PoolOptions.of(dataclasses.asdict(pool.options) | changes, "dayjob worker")
        return pool

    @staticmethod
    def _take_filed(pool: WorkerPool[Any], filed: Filed) -> None:
        """Take what [tool.dayjob.worker] names and neither a variable nor the pool does."""
        if (
            filed.redis is not None
            and addresses.pool_redis(pool.redis) is None
            and "REDIS_URL" not in os.environ
        ):
            os.environ.setdefault("DAYJOB_REDIS_URL", filed.redis)
        if filed.namespace is not None and pool.named_namespace is None:
            os.environ.setdefault("DAYJOB_NAMESPACE", filed.namespace)
        # Made by user code while it was imported; made again where they are used.
        for made in ("enqueuer", "async_enqueuer"):
            pool.__dict__.pop(made, None)

    def _work(self, pool: WorkerPool[Any], config: Config) -> int:
        hello = self._hello(pool, config)
        board = DeadlineBoard(self._board_fd, hello.workers)
        self._line.send(hello)
        try:
            runtime = self._start(pool, config, hello, board)
        except DayjobError:
            raise
        except Exception:  # what a lifespan raises may heal: the parent tries again
            logger.exception("the pool could not start")
            return 1
        if runtime is None:
            self._line.send(Ended())
            return 0
        self._line.send(Started())
        with self._lock:
            self._runtime = runtime
            within = self._within
        if self._quiet:
            runtime.quiet()
        if within is not None:
            runtime.stop(within)
        self._wait(runtime, config.report)
        self._line.send(Ended())
        return 0 if runtime.failure is None else INTERNAL

    def _start(
        self, pool: WorkerPool[Any], config: Config, hello: Hello, board: DeadlineBoard
    ) -> Runtime | None:
        """A started runtime; None when a stop was asked for while Redis was away."""

        def publish(pool_id: str) -> None:
            board.generation += 1
            self._line.send(Published(pool_id))

        pause = threading.Event()
        while self._within is None:
            runtime = Runtime(
                pool,
                publish=publish,
                board=board,
                tag=config.tag,
                asked=lambda: self._asked(config.timeout),
                loop_died=self._loop_died,
            )
            runtime.outage = self._outage
            try:
                if config.patient:
                    # Asked before, so that each try does not take another id.
                    _ping(hello)
                runtime.start()
            except Unavailable as error:
                if not config.patient:
                    raise
                self._outage.failed(error)
                pause.wait(REDIS_CHECK_SECONDS)
            else:
                self._outage.succeeded()
                return runtime
        return None

    def _wait(self, runtime: Runtime, period: float) -> None:
        last: Report | None = None
        # In slices: a signal handler runs between them on every platform.
        while not runtime.ended.wait(period or 1.0):
            if period:
                finished = runtime.fetcher.fetched - len(runtime.fetcher.held)
                report = Report(finished, resident() or _most_resident())
                if report != last:
                    self._line.send(report)
                last = report

    def _hello(self, pool: WorkerPool[Any], config: Config) -> Hello:
        target = addresses.resolve(None, pool=pool.redis)
        self._origin = _origin(target.origin, config)
        # The parent says once, for all of us, that nobody named a server.
        url = addresses.connect_target(target, told=True)
        options = pool.options
        timeouts = {one.name: one.options.timeout for one in pool.registry if one.options.timeout is not None}
        return Hello(
            url=url,
            server=str(addresses.parse_url(url)),
            origin=self._origin,
            fallback=str(target.embedded) if target.origin == addresses.FALLBACK else "",
            namespace=pool.namespace,
            lease=options.lease,
            beat=options.beat,
            grace=options.grace,
            concurrency=options.concurrency,
            names=[job_type.name for job_type in pool.registry],
            # Threads, then tasks.
            workers=2 * options.concurrency,
            timeouts=timeouts,
            conflicts=_conflicts(pool, config),
        )

    def _failure(self, error: DayjobError) -> Failed:
        if not isinstance(error, StoreError):
            return Failed(MISTAKE, str(error))
        next_step = "Start that server, or name another with --redis or DAYJOB_REDIS_URL."
        return Failed(UNAVAILABLE, f"{error}\n    Named by {self._origin}. {next_step}")


def main(
    arguments: Sequence[str], *, find: Callable[[str], WorkerPool[Any]], set_up: Callable[..., None]
) -> int:
    """Run a child: its pool, for people who look at the list of processes, and the descriptors of line and board."""
    line_fd, board_fd = map(int, arguments[1:])
    for fd in (line_fd, board_fd):
        os.set_inheritable(fd, False)
    return Child(ParentChannel(socket.socket(fileno=line_fd)), board_fd, find, set_up).run()


def _origin(origin: str, config: Config) -> str:
    if config.redis is not None:
        return "--redis"
    return addresses.IN_FILE if config.filed.redis is not None and origin == "DAYJOB_REDIS_URL" else origin


def _conflicts(pool: WorkerPool[Any], config: Config) -> list[str]:
    """Lines about settings that the pool and a variable or file give differently; an option of the call needs none."""
    lines = []
    if config.redis is None:
        lines.append(addresses.conflict("redis", pool.redis, file=config.filed.redis))
    if config.namespace is None:
        lines.append(addresses.conflict("namespace", pool.named_namespace, file=config.filed.namespace))
    return [line for line in lines if line]


def _ping(hello: Hello) -> None:
    link = Link(addresses.parse_url(hello.url), tag=Keys(hello.namespace).known_jobs)
    try:
        link.run(plain("PING"))
    finally:
        link.close()


def _most_resident() -> int:
    """The most memory this process ever had, in bytes: the next best where the present figure cannot be told."""
    import resource  # noqa: PLC0415 - where there is no /proc

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
