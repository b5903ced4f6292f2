"""ThreadExecutor: runs sync attempts on threads that grow on demand. Does no network I/O.

Work goes through one shared deque without a lock. A thread with nothing to do sleeps on a lock of its own, and is
woken, the last one first, only when there is more to do than those awake will get done soon: quick jobs need few
threads, slow ones many.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from dayjob.worker.running.attempt import Attempt, Settlement
from dayjob.worker.running.ready_queue import ReadyQueue
from dayjob.worker.running.slots import Slots

#: One more thread is woken for every so many seconds of quick work that wait.
SPREAD_SECONDS = 0.004
#: Attempts that take longer than this may be waiting for something, and get a thread each.
QUICK_SECONDS = 0.0005


class DeadlineSink(Protocol):
    """Where the deadlines of running attempts stand, for a supervising parent to read."""

    def post(self, worker: int, token: str, deadline: float) -> None: ...
    def clear(self, worker: int) -> None: ...


class WorkerThread:
    """One slot of the executor: a thread and what it runs."""

    __slots__ = ("bed", "current", "guard", "number", "posted", "thread")

    def __init__(self, number: int) -> None:
        self.number = number
        self.bed = threading.Lock()
        self.bed.acquire()
        #: Held while an exception is being sent to this thread, or its attempt ends.
        self.guard = threading.Lock()
        self.current: Attempt | None = None
        #: Its attempt stands on the board.
        self.posted = False
        self.thread: threading.Thread | None = None


class ThreadExecutor:
    """Runs sync attempts."""

    def __init__(
        self,
        run: Callable[[Attempt], Settlement],
        give_up: Callable[[Attempt, BaseException], Settlement],
        finish: Callable[[Attempt, Settlement], None],
        *,
        limit: int,
        slots: Slots | None = None,
        board: DeadlineSink | None = None,
    ) -> None:
        self._board = board
        self._run = run
        self._give_up = give_up
        self._finish = finish
        self.limit = limit
        self._slots = slots
        self.ready = ReadyQueue()
        self._idle: deque[WorkerThread] = deque()
        self._closing = False
        self._spawning = threading.Lock()
        self.workers: list[WorkerThread] = []
        if slots is not None:
            slots.on_free(self._poke)

    def give(self, attempts: Sequence[Attempt]) -> None:
        """Hand attempts over, to be started in order."""
        slowest = max(
            SPREAD_SECONDS
            if job_type.estimate is None or job_type.quickest > QUICK_SECONDS
            else job_type.quickest
            for job_type in {attempt.job_type for attempt in attempts}
        )
        self.ready.put(attempts)
        self.wake(max(1, round(len(attempts) * slowest / SPREAD_SECONDS)))

    def wake(self, count: int) -> None:
        """Get up to `count` more threads to work."""
        for _ in range(min(count, self.limit)):
            try:
                worker = self._idle.pop()
            except IndexError:
                if not self._spawn():
                    return
            else:
                worker.bed.release()

    def nudge(self) -> None:
        """Wake a thread for everything that waits: what is awake does not get it done."""
        if self.ready.attempts:
            self.wake(len(self.ready.attempts))

    @property
    def busy(self) -> int:
        """How many attempts run now."""
        return sum(1 for worker in self.workers if worker.current is not None)

    def running(self) -> list[Attempt]:
        """The attempts that run now."""
        return [attempt for worker in self.workers if (attempt := worker.current) is not None]

    def interrupt(self, attempt: Attempt, kind: type[BaseException]) -> bool:
        """Raise `kind` in the thread that runs `attempt`, which is marked already.

        False when the thread no longer runs it, or is taking or releasing a lock: try again a moment later.
        """
        worker = self.workers[attempt.worker]
        with worker.guard:
            if worker.current is not attempt or attempt.over or _at_a_lock(attempt.thread_id):
                return False
            raise_in(attempt.thread_id, kind)
            if _at_a_lock(attempt.thread_id):
                # The thread ran on between the look and the exception.
                raise_in(attempt.thread_id, None)
                return False
            return True

    def close(self) -> None:
        """Let idle threads end; those that run end after their attempt."""
        self._closing = True
        while self._idle:
            try:
                self._idle.popleft().bed.release()
            except IndexError:
                return

    def _poke(self) -> None:
        if self.ready.attempts:
            self.wake(1)

    def _spawn(self) -> bool:
        with self._spawning:
            if len(self.workers) >= self.limit or self._closing:
                return False
            worker = WorkerThread(len(self.workers))
            self.workers.append(worker)
        worker.thread = threading.Thread(
            target=self._work, args=(worker,), name=f"dayjob-worker-{worker.number}", daemon=True
        )
        worker.thread.start()
        return True

    def _work(self, worker: WorkerThread) -> None:
        ready, slots = self.ready.attempts, self._slots
        thread_id = threading.get_ident()
        #: When the attempt before ended, while nothing came between: the next starts then, and the clock is asked once.
        now = 0.0
        while not self._closing:
            slot = 0
            if slots is not None:
                taken = slots.take() if ready else None
                if taken is None:
                    self._rest(worker)
                    now = 0.0
                    continue
                slot = taken
            try:
                attempt = ready.popleft()
            except IndexError:
                if slots is not None:
                    slots.give(slot)
                self._rest(worker)
                now = 0.0
                continue
            if not (attempt.lost or attempt.settled):
                now = self._attempt(worker, attempt, thread_id, now or time.monotonic())
            if slots is not None:
                slots.give(slot)

    def _attempt(self, worker: WorkerThread, attempt: Attempt, thread_id: int, started: float) -> float:
        attempt.worker = worker.number
        attempt.thread_id = thread_id
        attempt.guard = worker.guard
        attempt.started_at = started
        timeout = attempt.job_type.options.timeout
        if timeout is not None:
            attempt.deadline = started + timeout
            if self._board is not None:
                worker.posted = True
                self._board.post(worker.number, attempt.token, attempt.deadline)
        worker.current = attempt
        settlement: Settlement = None
        ended = False
        problem: BaseException | None = None
        while True:
            # An exception that was sent to this thread may arrive at any instruction, in a function just called too:
            # so everything up to the end is inside, and the end can be done twice.
            try:
                if not ended:
                    settlement = self._run(attempt) if problem is None else self._give_up(attempt, problem)
                    ended = True
                self._part(worker, attempt, thread_id)
                break
            except BaseException as late:
                problem = late
        now = time.monotonic()
        attempt.ran = now - started
        if not attempt.given_up:
            self._finish(attempt, settlement)
        return now

    def _part(self, worker: WorkerThread, attempt: Attempt, thread_id: int) -> None:
        """Take the attempt off the worker; after this no exception can be sent to it, and none is pending.

        Whoever sends one marks the attempt first and then looks whether it is still current; here it is the other
        way round, so that an unmarked attempt needs no lock.
        """
        if worker.posted and self._board is not None:
            worker.posted = False
            self._board.clear(worker.number)
        worker.current = None
        if attempt.timed_out or attempt.cancelled or attempt.job_type.flags.stopping:
            with worker.guard:
                raise_in(thread_id, None)

    def _rest(self, worker: WorkerThread) -> None:
        self._idle.append(worker)
        if self._closing or (self.ready.attempts and (self._slots is None or self._slots.free)):
            # Something came in between: get up again, unless somebody just woke us.
            try:
                self._idle.remove(worker)
            except ValueError:
                worker.bed.acquire()
            return
        worker.bed.acquire()


#: Functions of the standard library in which an exception could leave a lock taken for good, such as a log handler's.
_LOCKING = frozenset(
    ("acquire", "release", "__enter__", "__exit__", "_acquireLock", "_releaseLock", "_acquire_restore", "_release_save")
)  # fmt: skip
_LOCKING_FILES = frozenset((logging.__file__, threading.__file__))


def _at_a_lock(thread_id: int) -> bool:
    """Whether a thread is about to take or release a lock; the exception would be raised in its innermost frame."""
    frame = sys._current_frames().get(thread_id)
    code = frame.f_code if frame is not None else None
    return code is not None and code.co_name in _LOCKING and code.co_filename in _LOCKING_FILES


def raise_in(thread_id: int, kind: type[BaseException] | None) -> None:
    """Set, or clear, the exception that a thread raises at its next instruction."""
    thing = ctypes.py_object(kind) if kind is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), thing)
