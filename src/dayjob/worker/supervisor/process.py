"""Process: the parent's view of one child: the messages it sent, whether it is alive, and how to stop it."""

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
    Started,
    Stop,
    ToChild,
    ToParent,
    Usage,
)
from dayjob.worker.supervisor.deadlines import DeadlineReader, Posted, new_file
from dayjob.worker.supervisor.leases import Cause, PoolAddress

#: Seconds that a child may take to stop beyond its timeout. The rest of one second is for the parent, which then sweeps
#: the child's pool.
STOP_OVERTIME_SECONDS = 0.65
#: Seconds after timeout and grace in which the child may still settle the attempt itself.
KILL_MARGIN_SECONDS = 0.75


class Process:
    """A child process, from its start until waitpid reports its exit."""

    def __init__(self, command: Sequence[str], config: Config) -> None:
        ours, theirs = socket.socketpair()
        self._board_fd = new_file()
        fds = (theirs.fileno(), self._board_fd)
        with theirs:
            # In its own session, so that a Ctrl-C in the terminal reaches only the parent.
            self._popen = subprocess.Popen(  # noqa: S603 - our own interpreter
                [*command, config.pool, *map(str, fds)],
                pass_fds=fds, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.line = ParentChannel(ours)
        self.line.send(config)
        self.pid = self._popen.pid
        self.hello: Hello | None = None
        self.place: PoolAddress | None = None
        #: Every pool id that it has used. The last one is in use.
        self.ids: list[str] = []
        self.started = False
        self.started_at = math.inf
        self.ended = False
        #: An operator asked it to stop: it is not replaced.
        self.asked = False
        #: One of its loops died: it is stopping, and the parent does not renew its lease.
        self.loop_died = False
        self.failure: Failed | None = None
        self.report = Usage(0, 0)
        #: Suspended by a signal: the parent does not renew its lease.
        self.suspended = False
        #: The exit code, negative for a signal; None while it is alive.
        self.code: int | None = None
        #: When to kill it, and the cause to store for each of its pool ids.
        self.kill_at = math.inf
        self.causes: dict[str, Cause] = {}
        #: Pool id and token of attempts that an operator killed, and when the parent learned of it.
        self.kills: dict[tuple[str, str], float] = {}
        self.killed = False
        self._board: DeadlineReader | None = None
        self._look_at = math.inf

    def receive(self) -> list[ToChild | ToParent]:
        """The messages since the last call. What they report about the child is stored here."""
        messages = self.line.receive(wait=False)
        for message in messages:
            if isinstance(message, Hello):
                self.hello = message
                self.place = PoolAddress(message.url, message.namespace, message.lease, message.beat)
                self._board = DeadlineReader(self._board_fd, message.workers)
                self._look_at = time.monotonic() + self._shortest_overdue
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
            elif isinstance(message, Usage):
                self.report = message
        return messages

    def look(self) -> None:
        """Ask the operating system whether the child was suspended, was resumed, or has exited."""
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self.suspended = True
            elif os.WIFCONTINUED(status):
                self.suspended = False
                # Its watchdog could not run. It gets time to settle attempts that passed their timeout.
                self._look_at = time.monotonic() + self._kill_delay
            else:
                self.code = self._popen.returncode = os.waitstatus_to_exitcode(status)

    @property
    def alive(self) -> bool:
        """Whether the parent may renew its lease."""
        return self.code is None and not (self.suspended or self.ended or self.loop_died)

    @property
    def look_at(self) -> float:
        """When the parent must read its deadlines next."""
        return math.inf if self.suspended or self.causes or self.killed else self._look_at

    def overdue(self, now: float) -> Posted | None:
        """An attempt that passed its timeout and the grace, or None.

        Sets `look_at` to the earliest time when another attempt can be overdue.
        """
        if now < self.look_at or self._board is None:
            return None
        posted = self._board.posted()
        first = min(posted, key=lambda one: one.deadline, default=None)
        self._look_at = now + self._shortest_overdue
        if first is None:
            return None
        self._look_at = min(self._look_at, first.deadline + self._kill_delay)
        return first if self._look_at <= now else None

    def outlasts_kill(self, pool_id: str, token: str, now: float) -> bool:
        """Whether an attempt that an operator killed still runs although it had time to end."""
        if self.place is None or self.causes or self.killed:
            return False
        # The child learns of the kill at its next heartbeat.
        return now - self.kills.setdefault((pool_id, token), now) > self.place.beat + self._kill_delay

    def stop(self, timeout: float) -> None:
        """Ask it to stop, and kill it if it has not ended STOP_OVERTIME_SECONDS after `timeout`."""
        if self.hello is None:
            # It is still importing user code, and holds no jobs.
            self._signal(signal.SIGTERM)
        else:
            self.line.send(Stop(timeout))
        self.kill_by(time.monotonic() + timeout + STOP_OVERTIME_SECONDS)

    def quiet(self) -> None:
        """Ask it to stop fetching jobs."""
        self.line.send(Quiet())

    def kill_by(self, when: float) -> None:
        """Kill it at that monotonic time, or earlier if an earlier time is set."""
        self.kill_at = min(self.kill_at, when)

    def kill(self, why: str) -> None:
        """Kill it now. Its jobs do not count this as a crash, because the parent did it."""
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
        """Close its channel and its shared memory."""
        self.line.close()
        if self._board is not None:
            self._board.close()
        os.close(self._board_fd)

    @property
    def _kill_delay(self) -> float:
        return KILL_MARGIN_SECONDS + (self.hello.grace if self.hello is not None else 0.0)

    @property
    def _shortest_overdue(self) -> float:
        """Seconds from its start after which an attempt with the shortest timeout is overdue."""
        timeouts = self.hello.timeouts.values() if self.hello is not None else ()
        return min(timeouts, default=math.inf) + self._kill_delay

    def _signal(self, number: int) -> None:
        # While waitpid has not reported the exit, the pid still belongs to this child.
        if self.code is None:
            os.kill(self.pid, number)


def _signal_name(number: int) -> str:
    """The name of a signal. Most real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
