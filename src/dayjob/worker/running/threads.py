"""ThreadExecutor: runs sync attempts on threads that it starts on demand. Does no network I/O.

Attempts wait in one shared deque without a lock. An idle thread sleeps on its own lock. The executor wakes the thread
that fell asleep last, and only if the awake threads will not finish the waiting attempts soon: quick jobs need few
threads, slow jobs need many.
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

#: One more thread is woken for this many seconds of waiting quick work.
SPREAD_SECONDS = 0.004
#: Attempts that take longer than this probably wait for I/O, and get a thread each.
QUICK_SECONDS = 0.0005


class DeadlineSink(Protocol):
    """Stores the deadlines of running attempts, where the parent process can read them."""

    def post(self, worker: int, token: str, deadline: float) -> None: ...
    def clear(self, worker: int) -> None: ...


class WorkerThread:
    """One worker of the executor: a thread and the attempt that it runs."""

    __slots__ = ("current", "guard", "number", "posted", "sleep_lock", "thread")

    def __init__(self, number: int) -> None:
        self.number = number
        self.sleep_lock = threading.Lock()
        self.sleep_lock.acquire()
        #: Held while another thread raises an exception in this one, and while an interrupted attempt ends.
        self.guard = threading.Lock()
        self.current: Attempt | None = None
        #: The deadline of its attempt is on the board.
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
        on_room: Callable[[], None],
        slots: Slots | None = None,
        board: DeadlineSink | None = None,
    ) -> None:
        self._board = board
        self._run = run
        self._give_up = give_up
        self._finish = finish
        #: Called when this executor can take attempts again although no attempt has finished.
        self._on_room = on_room
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
        """Wake or start up to `count` more threads."""
        for _ in range(min(count, self.limit)):
            try:
                worker = self._idle.pop()
            except IndexError:
                if not self._spawn():
                    return
            else:
                worker.sleep_lock.release()

    def nudge(self) -> None:
        """Wake a thread for each waiting attempt: the awake threads have not started them in time."""
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
        """Raise `kind` in the thread that runs `attempt`. The caller has set a flag of the attempt before.

        Returns False if the thread no longer runs it, or is taking or releasing a lock. Then the caller tries again
        later.
        """
        worker = self.workers[attempt.worker]
        with worker.guard:
            if worker.current is not attempt or attempt.over or _at_a_lock(attempt.thread_id):
                return False
            raise_in(attempt.thread_id, kind)
            if _at_a_lock(attempt.thread_id):
                # The thread reached a lock after the first check.
                clear_raise(attempt.thread_id)
                return False
            return True

    def close(self) -> None:
        """End idle threads. Busy threads end after their attempt."""
        self._closing = True
        while self._idle:
            try:
                self._idle.popleft().sleep_lock.release()
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
        #: When the previous attempt ended, if this thread did not sleep since: also the start of the next, which
        #: saves one call of the clock.
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
            # An exception raised in this thread by another one can surface at any instruction, even inside `_give_up`
            # or `_part`. So all of it is inside the try, and `_part` may run twice.
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
        if attempt.given_up:
            # The watchdog settled it while its thread was stuck. Only now the thread is free.
            self._on_room()
        else:
            self._finish(attempt, settlement)
        return now

    def _part(self, worker: WorkerThread, attempt: Attempt, thread_id: int) -> None:
        """Take the attempt off the worker. After this, no exception can be raised in it and none is pending.

        An interrupt sets a flag of the attempt first and then checks `current`. This method clears `current` first and
        then checks the flags, so that attempts without a flag need no lock.
        """
        if worker.posted and self._board is not None:
            worker.posted = False
            self._board.clear(worker.number)
        worker.current = None
        if attempt.timed_out or attempt.cancelled or attempt.job_type.pool.stopping:
            with worker.guard:
                clear_raise(thread_id)

    def _rest(self, worker: WorkerThread) -> None:
        self._idle.append(worker)
        if self._closing or (self.ready.attempts and (self._slots is None or self._slots.free)):
            # Work arrived in between: do not sleep. If another thread has just taken this one off the idle list, it also
            # releases the lock, which must be acquired again.
            try:
                self._idle.remove(worker)
            except ValueError:
                worker.sleep_lock.acquire()
            return
        worker.sleep_lock.acquire()


#: Functions of the standard library in which an exception could leave a lock acquired forever.
_LOCKING = frozenset(
    ("acquire", "release", "__enter__", "__exit__", "_acquireLock", "_releaseLock", "_acquire_restore", "_release_save")
)  # fmt: skip
_LOCKING_FILES = frozenset((logging.__file__, threading.__file__))


def _at_a_lock(thread_id: int) -> bool:
    """Whether a thread is taking or releasing a lock. An exception would be raised in its innermost frame."""
    frame = sys._current_frames().get(thread_id)
    code = frame.f_code if frame is not None else None
    return code is not None and code.co_name in _LOCKING and code.co_filename in _LOCKING_FILES


def raise_in(thread_id: int, kind: type[BaseException]) -> None:
    """Set the exception that a thread raises at its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(kind))


def clear_raise(thread_id: int) -> None:
    """Clear the exception that was set for a thread, if it has not been raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), None)
    if sys.version_info < (3, 13):
        _lower_flag()


class _Probe(BaseException):
    """Raised and caught by `_lower_flag`."""


def _lower_flag() -> None:
    """Lower the interpreter's flag for "an exception is pending for a thread".

    Before Python 3.13, clearing the exception of a thread raises this flag, and only a thread that raises its exception
    lowers it. With the flag up, all loops are slow, and a call under a profiler or debugger never returns on Python 3.11.
    """
    own = threading.get_ident()
    try:
        raise_in(own, _Probe)
        for _ in range(100):
            pass
    except _Probe:
        pass
