"""Starting and stopping a pool in this process: the part of WorkerPool that concerns its runtime."""

from __future__ import annotations

import os
import threading
from typing import Protocol, Self

from dayjob.errors import NotReady
from dayjob.job import running


class Running(Protocol):
    """The methods of the runtime that the pool uses."""

    def start(self) -> None: ...

    def drain(self, timeout: float | None) -> bool: ...

    def stop(self, timeout: float) -> None: ...

    def run(self) -> None: ...

    @property
    def ended(self) -> threading.Event: ...

    @property
    def pid(self) -> int: ...

    def runs(self, attempt: object) -> bool: ...


class PoolLifecycle:
    """Starts, drains and stops the runtime that `_build` makes. A runtime belongs to the process that built it."""

    def __init__(self) -> None:
        self._runtime: Running | None = None
        #: The runtime that was built from what is registered here; set as soon as it starts.
        self._built: Running | None = None

    def _build(self) -> Running:
        raise NotImplementedError

    def start(self) -> None:
        """Start the workers in this process, unless they are running. Raises NotReady, UsageError and StoreError."""
        with self._lock:
            if not self._running:
                runtime = self._build()
                runtime.start()
                self._runtime = runtime

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until the queues of this pool are empty and no job is running. Returns False after `timeout` seconds."""
        runtime = self._own()
        if runtime is None:
            raise NotReady("the pool is not started: call start() before drain()")
        self._refuse_own_job(runtime, "drain")
        return runtime.drain(timeout)

    def stop(self, timeout: float = 25) -> None:
        """Stop within `timeout` seconds; jobs that have not ended by then are requeued. Does nothing if not running."""
        own = self._own()
        if own is not None:
            self._refuse_own_job(own, "stop")
        with self._lock:
            runtime, self._runtime = self._own(), None
            if runtime is not None:
                runtime.stop(timeout)

    def run(self) -> None:
        """Start the pool, run until the process receives a stop signal, and stop the pool."""
        with self._lock:
            if self._running:
                raise NotReady("the pool is started already: run() starts and stops it by itself")
            runtime = self._runtime = self._build()
        try:
            runtime.run()
        finally:
            # Not under the lock: a thread in stop() holds it until this run has ended.
            if self._runtime is runtime:
                self._runtime = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415 - a program without async code does not need it

        # In a thread, because start() connects and must not block the event loop.
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio  # noqa: PLC0415 - see above

        await asyncio.to_thread(self.stop)

    @property
    def _running(self) -> bool:
        # A runtime may have ended by itself, because one of its loops failed.
        runtime = self._own()
        return runtime is not None and not runtime.ended.is_set()

    def _own(self) -> Running | None:
        """The runtime of this process. A forked child must not touch the runtime of its parent."""
        runtime = self._runtime
        return runtime if runtime is not None and runtime.pid == os.getpid() else None

    def _refuse_late(self, what: str) -> None:
        runtime = self._built
        if runtime is not None and runtime.pid == os.getpid() and not runtime.ended.is_set():
            raise NotReady(
                f"{what}: the pool is started, so this would have no effect.\n"
                "    Register it before start(), or in a module that include=[...] names; "
                "or call stop(), register it, and call start() again."
            )

    @staticmethod
    def _refuse_own_job(runtime: Running, verb: str) -> None:
        if runtime.runs(running.get()):
            raise NotReady(
                f"a job cannot {verb} its own pool: it would wait for itself. Send the process a signal"
            )

    @property
    def _lock(self) -> threading.Lock:
        # A new lock in each process, because another thread may have held the parent's lock at the fork.
        # setdefault makes two threads that get here at once use the same lock.
        made: threading.Lock = self.__dict__.setdefault(f"_made_lock_{os.getpid()}", threading.Lock())
        return made
