"""LoopExecutor: runs async attempts as tasks of one event loop on its own thread. Does no network I/O."""

from __future__ import annotations

import asyncio
import contextlib
import math
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
from dayjob.worker.running.attempt import Attempt, Settlement
from dayjob.worker.running.ready_queue import GIVE_BACK_AFTER_SECONDS, ReadyQueue
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


#: All executors of this process. A forked process must not return to their loops.
_executors: weakref.WeakSet[LoopExecutor] = weakref.WeakSet()
_ENDED = (
    b"dayjob: ended a process that an async job forked, because it returned to the event loop of its parent. "
    b"Call os._exit() in the forked process before it awaits.\n"
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
        on_room: Callable[[], None],
        slots: Slots | None = None,
        board: DeadlineSink | None = None,
    ) -> None:
        #: Records on the board for attempts with a timeout. The threads use the records before them.
        self._board = board
        self._places = deque(range(limit, 2 * limit))
        self._run = run
        self._give_up = give_up
        self._finish = finish
        #: Called when this executor can take attempts again although no attempt has finished.
        self._on_room = on_room
        self.limit = limit
        self._slots = slots
        self.ready = ReadyQueue()
        self._tasks: dict[Attempt, asyncio.Task[None]] = {}
        self._loop = new_loop()
        self._poked = False
        self._poked_at = 0.0
        #: The timer that checks deadlines, and its monotonic time.
        self._timer: asyncio.TimerHandle | None = None
        self._checks_at = math.inf
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
        """Does nothing: the loop starts each attempt as soon as a slot is free."""

    @property
    def busy(self) -> int:
        """How many attempts run now."""
        return len(self._tasks)

    @property
    def stalled(self) -> bool:
        """Whether a handler blocks the loop, so that no other attempt can start."""
        return self._poked and time.monotonic() - self._poked_at > GIVE_BACK_AFTER_SECONDS

    def running(self) -> list[Attempt]:
        """The attempts that run now."""
        return list(self._tasks)

    def coroutine(self, attempt: Attempt) -> Any:
        """The coroutine that runs `attempt`, or None; for showing its stack."""
        task = self._tasks.get(attempt)
        return None if task is None else task.get_coro()

    @property
    def thread_id(self) -> int:
        """The thread that the loop runs on."""
        return self._thread.ident or 0

    def current(self) -> Attempt | None:
        """The attempt whose code the loop runs now. Called from another thread."""
        task = asyncio.current_task(self._loop)
        return next((attempt for attempt, one in list(self._tasks.items()) if one is task), None)

    def call(self, work: Callable[[], object]) -> None:
        """Make the loop call `work` soon. Does nothing if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work)

    def interrupt(self, attempt: Attempt, kind: type[BaseException]) -> bool:  # noqa: ARG002 - same signature as ThreadExecutor's
        """Cancel the task that runs `attempt`."""
        task = self._tasks.get(attempt)
        if task is None or self._closed:
            return False
        self._loop.call_soon_threadsafe(task.cancel)
        return True

    def submit(self, work: Callable[[], Awaitable[Any]], *, timeout: float | None = None) -> Any:
        """Run `work` on the loop and wait for its result. Raises TimeoutError if the loop is blocked."""

        async def call() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(timeout)

    def close(self) -> None:
        """Stop the loop. Tasks that still run are cancelled, and abandoned if they do not end."""
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
                logger.exception(
                    "a task or callback that a handler started tried to end the event loop. The loop continues."
                )
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        with contextlib.suppress(RuntimeError, TimeoutError):
            self._loop.run_until_complete(self._end_tasks())
        self._loop.close()

    async def _end_tasks(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            # Limited, because a task may swallow its cancellation.
            await asyncio.wait(others, timeout=0.2)
        await self._loop.shutdown_asyncgens()

    def _poke(self) -> None:
        if self.ready.attempts and not self._poked and not self._closed:
            self._poked = True
            self._poked_at = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._pump)
            except RuntimeError:
                # The loop was closed in between: the pool is stopping and gives back the ready attempts.
                self._closed = True

    def end_after_fork(self) -> None:
        """Called in a process that was forked on this loop: end it as soon as its code returns to the loop.

        The loop, its sockets and the jobs of its tasks belong to the parent process.
        """
        # Not compared by ident: a new thread may have that of a loop that has ended.
        if threading.current_thread() is not self._thread:
            return
        loop_code = (self._main.__code__, asyncio.Handle._run.__code__)
        top = sys._getframe()
        while top.f_back is not None and top.f_back.f_code not in loop_code:
            top = top.f_back

        def profile(frame: FrameType, event: str, _arg: object) -> None:
            # For the interpreter, a coroutine that awaits also returns to the loop.
            if frame is top and event == "return":
                os.write(2, _ENDED)
                os._exit(1)

        # For this thread only: a forked process has no other.
        sys.setprofile(profile)

    def _pump(self) -> None:
        if self._forks != fork.number:
            return
        stalled = self.stalled
        self._poked = False
        if stalled:
            # The fetcher may have taken its attempts back, and fetches no others while the loop is stalled.
            self._on_room()
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
            # A fresh context, so that context variables do not leak from the job whose end called this method.
            self._tasks[attempt] = self._loop.create_task(self._attempt(attempt, slot), context=Variables())

    async def _attempt(self, attempt: Attempt, slot: int) -> None:
        if attempt.settled:
            # Given back after its task was created and before its first step: another pool may run it by now.
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
            if attempt.deadline < self._checks_at:
                self._check_at(attempt.deadline)
            if self._board is not None:
                place = self._places.popleft()
                self._board.post(place, attempt.token, attempt.deadline)
        settlement: Settlement = None
        try:
            settlement = await self._run(attempt)
        except BaseException as error:
            # If the next call raises, too, the attempt goes back to its queue.
            settlement = attempt.back()
            settlement = self._give_up(attempt, error)
        finally:
            if self._board is not None and place >= 0:
                self._board.clear(place)
                self._places.append(place)
            self._settle(attempt, settlement, started, slot)

    def _check_at(self, deadline: float) -> None:
        """Check deadlines at this monotonic time.

        One timer serves all attempts, because a timer for each would cost more than a quick attempt.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._checks_at = deadline
        # A fresh context, because the timer outlives the job in whose context this method runs.
        self._timer = self._loop.call_later(
            max(0.0, deadline - time.monotonic()), self._check_deadlines, context=Variables()
        )

    def _check_deadlines(self) -> None:
        """Cancel the tasks of attempts that have passed their timeout."""
        self._timer, self._checks_at = None, math.inf
        now = time.monotonic()
        running = [one for one in self._tasks if one.deadline and not one.timed_out]
        for attempt in running:
            if attempt.deadline <= now:
                attempt.timed_out = True
                self._tasks[attempt].cancel()
        later = [one.deadline for one in running if not one.timed_out]
        if later:
            self._check_at(min(later))

    def _settle(self, attempt: Attempt, settlement: Settlement, started: float, slot: int) -> None:
        """Report how the attempt ended, and start the next one in its place."""
        del self._tasks[attempt]
        attempt.ran = time.monotonic() - started
        self._finish(attempt, settlement)
        if self._slots is not None:
            self._slots.give(slot)
        if self.ready.attempts and not self._poked:
            # This is the loop's own thread, which needs no wake-up through a socket.
            self._poked = True
            self._poked_at = time.monotonic()
            self._loop.call_soon(self._pump)
