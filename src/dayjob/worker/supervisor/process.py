"""Process: one child as its parent sees it: what it said, whether it lives, and how to reach it."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

from dayjob.worker.supervisor.channel import (
    Asked,
    Config,
    Ended,
    Failed,
    Hello,
    LoopDied,
    ParentChannel,
    Published,
    Quiet,
    Report,
    Started,
    Stop,
    ToChild,
    ToParent,
)
from dayjob.worker.supervisor.deadlines import DeadlineReader, Posted, new_file
from dayjob.worker.supervisor.leases import Cause, PoolAddress

#: Seconds that a child may take to stop beyond its timeout; what is left of one more second is the parent's, who buries it.
STOP_OVERTIME_SECONDS = 0.65
#: Seconds after a timeout and its grace in which the child may still settle the attempt itself.
KILL_MARGIN_SECONDS = 0.75


class Process:
    """A child, from its start to the proof of its death."""

    def __init__(self, command: Sequence[str], config: Config) -> None:
        ours, theirs = socket.socketpair()
        self._board_fd = new_file()
        fds = (theirs.fileno(), self._board_fd)
        with theirs:
            # A session of its own: a Ctrl-C in the terminal is for the parent to decide upon.
            self._popen = subprocess.Popen(  # noqa: S603 - our own interpreter
                [*command, config.pool, *map(str, fds)],
                pass_fds=fds, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.line = ParentChannel(ours)
        self.line.send(config)
        self.pid = self._popen.pid
        self.hello: Hello | None = None
        self.place: PoolAddress | None = None
        #: Every id it took, the last one in use.
        self.ids: list[str] = []
        self.started = False
        self.started_at = math.inf
        self.ended = False
        #: An operator asked it to stop: it is not replaced.
        self.asked = False
        #: One of its loops died: it stops, and gets no lease from us.
        self.loop_died = False
        self.failure: Failed | None = None
        self.report = Report(0, 0)
        #: Suspended by a signal: it gets no lease from us.
        self.suspended = False
        #: The exit code, negative for a signal; None while it lives.
        self.code: int | None = None
        #: When to kill it, and what to write of each id then.
        self.kill_at = math.inf
        self.causes: dict[str, Cause] = {}
        #: Attempts that an operator killed, and since when the parent knows.
        self.kills: dict[tuple[str, str], float] = {}
        self.killed = False
        self._board: DeadlineReader | None = None
        self._look_at = math.inf

    def receive(self) -> list[ToChild | ToParent]:
        """What it said since the last time, noted here as far as it is about itself."""
        messages = self.line.receive(wait=False)
        for message in messages:
            if isinstance(message, Hello):
                self.hello = message
                self.place = PoolAddress(message.url, message.namespace, message.lease, message.beat)
                self._board = DeadlineReader(self._board_fd, message.workers)
                self._look_at = time.monotonic() + self._earliest
            elif isinstance(message, Published):
                self.ids.append(message.id)
            elif isinstance(message, Started):
                self.started = True
                self.started_at = time.monotonic()
            elif isinstance(message, Asked):
                self.asked = True
            elif isinstance(message, LoopDied):
                self.loop_died = True
            elif isinstance(message, Ended):
                self.ended = True
            elif isinstance(message, Failed):
                self.failure = message
            elif isinstance(message, Report):
                self.report = message
        return messages

    def look(self) -> None:
        """Learn from the system whether it was suspended, goes on, or is dead."""
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self.suspended = True
            elif os.WIFCONTINUED(status):
                self.suspended = False
                # Its watchdog could not run: it gets the time to settle what went over.
                self._look_at = time.monotonic() + self._patience
            else:
                self.code = self._popen.returncode = os.waitstatus_to_exitcode(status)

    @property
    def alive(self) -> bool:
        """Whether it may be given a lease."""
        return self.code is None and not (self.suspended or self.ended or self.loop_died)

    @property
    def look_at(self) -> float:
        """When its board is worth a look."""
        return math.inf if self.suspended or self.causes or self.killed else self._look_at

    def overdue(self, now: float) -> Posted | None:
        """An attempt that passed its timeout and the grace. What is posted from now on cannot be due before look_at."""
        if now < self.look_at or self._board is None:
            return None
        posted = self._board.posted()
        first = min(posted, key=lambda one: one.deadline, default=None)
        self._look_at = now + self._earliest
        if first is None:
            return None
        self._look_at = min(self._look_at, first.deadline + self._patience)
        return first if self._look_at <= now else None

    def outlasts_kill(self, pool_id: str, token: str, now: float) -> bool:
        """Whether an attempt that an operator killed had the time to learn it and to end, and did not."""
        if self.place is None or self.causes or self.killed:
            return False
        # The child learns of it with its own beat.
        return now - self.kills.setdefault((pool_id, token), now) > self.place.beat + self._patience

    def stop(self, timeout: float) -> None:
        """Ask it to stop; it is killed when it has not within a moment more than that."""
        if self.hello is None:
            # It is still being imported, and holds nothing.
            self._signal(signal.SIGTERM)
        else:
            self.line.send(Stop(timeout))
        self.kill_by(time.monotonic() + timeout + STOP_OVERTIME_SECONDS)

    def quiet(self) -> None:
        """Ask it to fetch nothing more."""
        self.line.send(Quiet())

    def kill_by(self, when: float) -> None:
        """Kill it at that time, unless it was to be earlier."""
        self.kill_at = min(self.kill_at, when)

    def kill(self, why: str) -> None:
        """Kill it now. Nothing that it held counts that as a death, since it is our doing."""
        self.killed = True
        self.kill_at = math.inf
        self.causes = {pool_id: self.causes.get(pool_id, Cause("", why)) for pool_id in self.ids}
        self._signal(signal.SIGKILL)

    def obituary(self) -> str:
        """How it ended, in one line."""
        if self.failure is not None:
            return " ".join(self.failure.text.split())
        if self.code is None or self.code >= 0:
            return f"process {self.pid} exited with code {self.code}"
        name = _signal_name(-self.code)
        hint = " (out of memory?)" if name == "SIGKILL" and not self.killed else ""
        return f"process {self.pid} was killed by {name}{hint}"

    def close(self) -> None:
        """Let go of what belonged to it."""
        self.line.close()
        if self._board is not None:
            self._board.close()
        os.close(self._board_fd)

    @property
    def _patience(self) -> float:
        return KILL_MARGIN_SECONDS + (self.hello.grace if self.hello is not None else 0.0)

    @property
    def _earliest(self) -> float:
        """Seconds from the start of an attempt until it can be overdue."""
        timeouts = self.hello.timeouts.values() if self.hello is not None else ()
        return min(timeouts, default=math.inf) + self._patience

    def _signal(self, number: int) -> None:
        # Not reaped yet, so the pid is still this child's.
        if self.code is None:
            os.kill(self.pid, number)


def _signal_name(number: int) -> str:
    """The name of a signal; of the real-time ones only the first and the last have one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
