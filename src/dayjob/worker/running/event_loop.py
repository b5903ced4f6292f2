"""LoopExecutor: runs async attempts as tasks of one event loop, on a thread of its own. Does no network I/O."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context as Variables
from types import FrameType
from typing import Any

from dayjob.safe_logging import SafeLogger
from dayjob.store import fork
from dayjob.worker.fetching.budget import GIVE_BACK_AFTER_SECONDS
from dayjob.worker.running.attempt import Attempt, Settlement
from dayjob.worker.running.ready_queue import ReadyQueue
from dayjob.worker.running.slots import Slots
from dayjob.worker.running.threads import DeadlineSink

logger = SafeLogger("dayjob.worker")


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop; uvloop's where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()  # type: ignore[no-any-return,unused-ignore]  # an extra without types everywhere


#: Every executor of this process, for a process that is forked off it.
_executors: weakref.WeakSet[LoopExecutor] = weakref.WeakSet()
_ENDED = (
    b"dayjob: a process that an async job forked went back to the event loop, which is its parent's: ended. "
    b"Let it os._exit() before it awaits.\n"
)


def _after_fork() -> None:
    for executor in list(_executors):
        executor.end_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class LoopExecutor:
    """Runs async attempts."""

    def __init__(
        self,
        run: Callable[[Attempt], Coroutine[Any, Any, Settlement]],
        give_up: Callable[[Attempt, BaseException], Settlement],
        finish: Callable[[Attempt, Settlement], None],
        *,
        limit: int,
        slots: Slots | None = None,
        board: DeadlineSink | None = None,
    ) -> None:
        #: Places on the board for attempts with a timeout, behind those of the threads.
        self._board = board
        self._places = deque(range(limit, 2 * limit))
        self._run = run
        self._give_up = give_up
        self._finish = finish
        self.limit = limit
        self._slots = slots
        self.ready = ReadyQueue()
        self._tasks: dict[Attempt, asyncio.Task[None]] = {}
        self._loop = new_loop()
        self._poked = False
        self._poked_at = 0.0
        self._thread = threading.Thread(target=self._main, name="dayjob-loop", daemon=True)
        self._closed = False
        self._forks = fork.number
        _executors.add(self)
        if slots is not None:
            slots.on_free(self._poke)
        self._thread.start()

    def give(self, attempts: Sequence[Attempt]) -> None:
        """Hand attempts over, to be started in order."""
        self.ready.put(attempts)
        self._poke()

    def nudge(self) -> None:
        """Nothing to do: every attempt is started as soon as there is a place for it."""

    @property
    def busy(self) -> int:
        """How many attempts run now."""
        return len(self._tasks)

    @property
    def stalled(self) -> bool:
        """Whether a handler blocks the loop, so that nothing else starts."""
        return self._poked and time.monotonic() - self._poked_at > GIVE_BACK_AFTER_SECONDS

    def running(self) -> list[Attempt]:
        """The attempts that run now."""
        return list(self._tasks)

    def coroutine(self, attempt: Attempt) -> Any:
        """What runs `attempt`, or None; for those who want to see where it is."""
        task = self._tasks.get(attempt)
        return None if task is None else task.get_coro()

    @property
    def thread_id(self) -> int:
        """The thread that the loop runs on."""
        return self._thread.ident or 0

    def current(self) -> Attempt | None:
        """The attempt whose code runs at this moment, as seen from another thread."""
        task = asyncio.current_task(self._loop)
        return next((attempt for attempt, one in list(self._tasks.items()) if one is task), None)

    def call(self, work: Callable[[], object]) -> None:
        """Have the loop call something as soon as it comes to it; nothing when it is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work)

    def interrupt(self, attempt: Attempt, kind: type[BaseException]) -> bool:  # noqa: ARG002 - same shape as the threads'
        """Cancel the task that runs `attempt`."""
        task = self._tasks.get(attempt)
        if task is None or self._closed:
            return False
        self._loop.call_soon_threadsafe(task.cancel)
        return True

    def submit(self, work: Callable[[], Awaitable[Any]], *, timeout: float | None = None) -> Any:
        """Run something on the loop and wait for it; for lifespans. Raises TimeoutError where a handler blocks it."""

        async def call() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(timeout)

    def close(self) -> None:
        """Stop the loop; tasks that still run are cancelled and left behind."""
        if self._closed:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(1.0)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closed:
            try:
                self._loop.run_forever()
            except BaseException:  # sys.exit() in a task or callback that a handler started ends run_forever
                logger.exception("something that a handler started tried to end the event loop; it goes on")
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        with contextlib.suppress(RuntimeError, TimeoutError):
            self._loop.run_until_complete(self._farewell())
        self._loop.close()

    async def _farewell(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            # A task that swallows its cancellation does not hold up the end.
            await asyncio.wait(others, timeout=0.2)
        await self._loop.shutdown_asyncgens()

    def _poke(self) -> None:
        if self.ready.attempts and not self._poked and not self._closed:
            self._poked = True
            self._poked_at = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._pump)
            except RuntimeError:
                # The loop was closed in between: the pool is stopping and takes back what is ready.
                self._closed = True

    def end_after_fork(self) -> None:
        """In a process that was forked on this loop: let the code that forked go on, but never return to the loop.

        The loop and its sockets are the parent's, and so are the jobs whose tasks wait there.
        """
        if threading.get_ident() != self._thread.ident:
            return
        loop_code = (self._main.__code__, asyncio.Handle._run.__code__)
        top = sys._getframe()
        while top.f_back is not None and top.f_back.f_code not in loop_code:
            top = top.f_back

        def profile(frame: FrameType, event: str, _arg: object) -> None:
            # A coroutine that awaits returns to the loop, as far as the interpreter is concerned.
            if frame is top and event == "return":
                os.write(2, _ENDED)
                os._exit(1)

        # Only this thread is left in the process.
        sys.setprofile(profile)

    def _pump(self) -> None:
        if self._forks != fork.number:
            return
        self._poked = False
        slots = self._slots
        while self.ready.attempts and len(self._tasks) < self.limit:
            slot = 0
            if slots is not None:
                taken = slots.take()
                if taken is None:
                    return
                slot = taken
            try:
                attempt = self.ready.attempts.popleft()
            except IndexError:
                if slots is not None:
                    slots.give(slot)
                return
            if attempt.lost or attempt.settled:
                if slots is not None:
                    slots.give(slot)
                continue
            # Fresh variables, so that nothing leaks from the job that happened to poke us.
            self._tasks[attempt] = self._loop.create_task(self._attempt(attempt, slot), context=Variables())

    async def _attempt(self, attempt: Attempt, slot: int) -> None:
        if attempt.settled:
            # Given back between its task being made and its first step: somebody else may run it by now.
            del self._tasks[attempt]
            if self._slots is not None:
                self._slots.give(slot)
            return
        started = attempt.started_at = time.monotonic()
        timeout = attempt.job_type.options.timeout
        attempt.worker = slot
        place = -1
        if timeout is not None:
            attempt.deadline = started + timeout
            if self._board is not None:
                place = self._places.popleft()
                self._board.post(place, attempt.token, attempt.deadline)
        #: Should neither of the two below return, the attempt goes back to its queue.
        settlement: Settlement = (attempt.back(),)
        try:
            settlement = await self._run(attempt)
        except BaseException as error:
            settlement = self._give_up(attempt, error)
        finally:
            if self._board is not None and place >= 0:
                self._board.clear(place)
                self._places.append(place)
            self._settle(attempt, settlement, started, slot)

    def _settle(self, attempt: Attempt, settlement: Settlement, started: float, slot: int) -> None:
        """Report how the attempt ended, and start the next one in its place."""
        del self._tasks[attempt]
        attempt.ran = time.monotonic() - started
        self._finish(attempt, settlement)
        if self._slots is not None:
            self._slots.give(slot)
        if self.ready.attempts and not self._poked:
            # On the loop's own thread no wake-up call is needed.
            self._poked = True
            self._poked_at = time.monotonic()
            self._loop.call_soon(self._pump)
