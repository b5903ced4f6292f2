"""Child: runs the pool of one supervised process. Stops, and gives back its jobs, when the parent has ended."""

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
from dayjob.store.link_errors import NEXT_STEP
from dayjob.store.op import plain
from dayjob.store.urls import parse_url
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
    Started,
    Stop,
    Usage,
)
from dayjob.worker.supervisor.deadlines import DeadlineBoard
from dayjob.worker.supervisor.signals import handle

logger = SafeLogger("dayjob.worker")

#: Exit codes: an error in the program or its settings, Redis unreachable, a loop died.
MISTAKE, UNAVAILABLE, INTERNAL = 2, 69, 70
#: Seconds between two checks whether Redis is reachable.
REDIS_CHECK_SECONDS = 0.5


class ReportedOutage(Outage):
    """Reports an outage of Redis to the parent, which logs it once for all its children."""

    def __init__(self, line: ParentChannel) -> None:
        super().__init__()
        self._line = line

    def _report_unreachable(self, error: StoreError, now: float) -> None:
        if self._reported_at is None:
            self._reported_at = now
            self._line.send(Away(str(error)))

    def _report_reachable(self, now: float) -> None:  # noqa: ARG002 - the parent measures the time itself
        if self._reported_at is not None:
            self._line.send(Back())
        self._reported_at = None


class Child:
    """Runs one supervised process: loads the pool, starts it, waits for its end."""

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
        self._configured = threading.Event()
        self._outage = ReportedOutage(line)
        self._lock = threading.Lock()
        self._loaded = False
        self._runtime: Runtime | None = None
        self._quiet = False
        #: The setting that names the server.
        self._origin = ""
        #: Seconds within which to stop; None until a stop was requested.
        self._within: float | None = None
        threading.Thread(target=self._watch, name="dayjob-parent", daemon=True).start()

    def run(self) -> int:
        """Run until the pool has stopped. Returns the exit code."""
        self._configured.wait()
        config = self._config
        if config is None:
            return 0
        try:
            pool = self._load(config)
            # While user code is imported, TERM has its default action: the process holds no jobs yet.
            with handle(self, timeout=config.timeout, supervised=True):
                self._loaded = True
                return self._work(pool, config)
        except DayjobError as error:
            self._line.send(self._failure(error))
            return UNAVAILABLE if isinstance(error, StoreError) else MISTAKE

    def stop(self, timeout: float = 25.0) -> None:
        """Stop within `timeout` seconds. Ends the process at once if the pool is not loaded yet."""
        if not self._loaded:
            os._exit(0)
        with self._lock:
            if self._within is not None:
                return
            self._within = timeout
            runtime = self._runtime
        if runtime is not None:
            runtime.stop(timeout)

    def _stop_on_request(self, timeout: float) -> None:
        """Stop because an operator asked for it. The parent must know it first, or it would start another child."""
        if self._within is None:
            self._line.send(Asked())
            threading.Thread(target=self.stop, args=(timeout,), name="dayjob-stop", daemon=True).start()

    def _loop_died(self, loop: str, error: BaseException) -> None:
        """Report a dead loop. The parent no longer renews the lease, and kills this process if it does not end."""
        self._line.send(LoopDied(loop, type(error).__name__))

    def hurry(self) -> None:
        """Return running jobs to their queues now."""
        if self._runtime is not None:
            self._runtime.hurry()

    def quiet(self) -> None:
        """Stop fetching jobs."""
        self._quiet = True
        if self._runtime is not None:
            self._runtime.quiet()

    def _watch(self) -> None:
        """Handle the messages of the parent. Stop if the channel is closed: the parent has ended."""
        timeout = 0.0
        while not self._line.cut:
            for message in self._line.receive(wait=True):
                if isinstance(message, Config):
                    self._config, timeout = message, message.timeout
                    self._configured.set()
                elif isinstance(message, Stop):
                    # On its own thread, because the next message may be Hurry.
                    threading.Thread(target=self.stop, args=(message.timeout,), daemon=True).start()
                elif isinstance(message, Hurry):
                    self.hurry()
                elif isinstance(message, Quiet):
                    self.quiet()
        self._configured.set()
        if self._within is None:
            logger.error("the parent process has ended: stopping within %.0f s", timeout)
        self.stop(timeout)

    def _load(self, config: Config) -> WorkerPool[Any]:
        # In the environment, which takes precedence over the pool, so that enqueuers created by user code use the
        # same server and namespace.
        if config.redis is not None:
            os.environ["DAYJOB_REDIS_URL"] = config.redis
        if config.namespace is not None:
            os.environ["DAYJOB_NAMESPACE"] = config.namespace
        try:
            pool = self._find(config.pool)
        finally:
            # Checked even if the import failed: patched threads may be the reason.
            refuse_green_threads()
        self._take_filed(pool, config.filed)
        # After the import, so that the logging configuration of the program is kept.
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
        """Apply settings of [tool.dayjob.worker] that neither a variable nor the pool sets."""
        if (
            filed.redis is not None
            and addresses.pool_redis(pool.redis) is None
            and "REDIS_URL" not in os.environ
        ):
            os.environ.setdefault("DAYJOB_REDIS_URL", filed.redis)
        if filed.namespace is not None and pool.named_namespace is None:
            os.environ.setdefault("DAYJOB_NAMESPACE", filed.namespace)
        # Enqueuers that user code created during the import may use other settings. They are created again when used.
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
        except Exception:  # an error of a lifespan may be temporary: the parent starts another child
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
        """A started runtime; None if a stop was requested while Redis was unreachable."""

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
                asked=lambda: self._stop_on_request(config.timeout),
                loop_died=self._loop_died,
            )
            runtime.outage = self._outage
            try:
                if config.patient:
                    # Checked first, because each call of start() uses up a pool id.
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
        last: Usage | None = None
        # With a timeout, because on some platforms signal handlers run only between two waits.
        while not runtime.ended.wait(period or 1.0):
            if period:
                finished = runtime.state.fetched - len(runtime.state.held)
                report = Usage(finished, resident() or _most_resident())
                if report != last:
                    self._line.send(report)
                last = report

    def _hello(self, pool: WorkerPool[Any], config: Config) -> Hello:
        target = addresses.resolve(None, pool=pool.redis)
        self._origin = _origin(target.origin, config)
        # The parent logs once for all children that no setting names a server.
        url = addresses.connect_target(target, warned=True)
        options = pool.options
        timeouts = {one.name: one.options.timeout for one in pool.registry if one.options.timeout is not None}
        return Hello(
            url=url,
            server=str(parse_url(url)),
            origin=self._origin,
            fallback=str(target.embedded) if target.origin == addresses.FALLBACK else "",
            namespace=pool.namespace,
            lease=options.lease,
            beat=options.beat,
            grace=options.grace,
            concurrency=options.concurrency,
            names=[job_type.name for job_type in pool.registry],
            # Records for threads first, then for tasks.
            workers=2 * options.concurrency,
            timeouts=timeouts,
            conflicts=_conflicts(pool, config),
        )

    def _failure(self, error: DayjobError) -> Failed:
        if not isinstance(error, StoreError):
            return Failed(MISTAKE, str(error))
        return Failed(UNAVAILABLE, f"{error}\n    Named by {self._origin}. {NEXT_STEP}")


def main(
    arguments: Sequence[str], *, find: Callable[[str], WorkerPool[Any]], set_up: Callable[..., None]
) -> int:
    """Run a child. `arguments` are the pool, which is there for the process list only, and two file descriptors."""
    line_fd, board_fd = map(int, arguments[1:])
    for fd in (line_fd, board_fd):
        os.set_inheritable(fd, False)
    return Child(ParentChannel(socket.socket(fileno=line_fd)), board_fd, find, set_up).run()


def _origin(origin: str, config: Config) -> str:
    if config.redis is not None:
        return "--redis"
    return addresses.IN_FILE if config.filed.redis is not None and origin == "DAYJOB_REDIS_URL" else origin


def _conflicts(pool: WorkerPool[Any], config: Config) -> list[str]:
    """Log lines about settings for which the pool and a variable or file have different values.

    An option on the command line is explicit, so it needs no line.
    """
    lines = []
    if config.redis is None:
        lines.append(addresses.conflict("redis", pool.redis, file=config.filed.redis))
    if config.namespace is None:
        lines.append(addresses.conflict("namespace", pool.named_namespace, file=config.filed.namespace))
    return [line for line in lines if line]


def _ping(hello: Hello) -> None:
    link = Link(parse_url(hello.url), tag=Keys(hello.namespace).known_jobs)
    try:
        link.run(plain("PING"))
    finally:
        link.close()


def _most_resident() -> int:
    """The peak memory of this process in bytes, used where the current value is not available."""
    import resource  # noqa: PLC0415 - needed only where there is no /proc

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
