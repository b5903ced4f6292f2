"""DueBell: waits for the bell that announces a job or a queue that is due before all others.

While the listener of the pool blocks on the bells of the queues, it waits for this bell too, so an idle leader sends no
command for it. At other times the chores wait by themselves, on the connection that they share with the heartbeat.
"""

from __future__ import annotations

import threading

from dayjob.errors import Rejected
from dayjob.store.keys import Keys
from dayjob.store.op import plain
from dayjob.store.ops import consume
from dayjob.worker.shared_link import SharedLink

#: Longest wait on the shared connection, in seconds: the heartbeat must get its turn.
MAX_BLOCKING_SECONDS = 0.5
#: Seconds by which a blocking command of Redis may return too late.
BLOCKING_OVERRUN_SECONDS = 0.12


class DueBell:
    """The bell of due jobs, for one pool. The listener and the chores of the pool use it from their threads."""

    def __init__(self, keys: Keys, link: SharedLink, *, beat: float) -> None:
        self.key = keys.due
        self._link = link
        self._slice = min(MAX_BLOCKING_SECONDS, beat / 4)
        #: Whether the listener waits for this bell now.
        self._listener_waits = False
        self._rung = False
        self._changed = threading.Event()
        self._closing = False

    # Called by the listener.

    def listener_waits(self) -> None:
        """Note that the listener waits for this bell from now on."""
        self._listener_waits = True

    def listener_stopped(self) -> None:
        """Note that the listener no longer waits for this bell, so that the chores do."""
        if self._listener_waits:
            self._listener_waits = False
            self._changed.set()

    def ring(self) -> None:
        """Wake the chores, because the bell rang."""
        self._rung = True
        self._changed.set()

    # Called by the chores.

    def wait(self, seconds: float) -> bool:
        """Wait for the bell, at most about this long. Returns whether it rang."""
        if self._listener_waits and not self._closing:
            self._changed.wait(seconds)
        elif not self._rung and not self._closing:
            self._wait_alone(min(seconds, self._slice))
        self._changed.clear()
        rung, self._rung = self._rung, False
        return rung

    def _wait_alone(self, seconds: float) -> None:
        if seconds <= BLOCKING_OVERRUN_SECONDS:
            # An idle server checks blocked clients only ten times a second, so short waits are done on this side.
            self._changed.wait(seconds)
            return
        try:
            bell = self._link.run(consume.wait_bell([self.key], seconds - BLOCKING_OVERRUN_SECONDS))
        except Rejected:
            # Only dayjob uses this key, so a value of a wrong type can be deleted.
            self._link.run(plain("DEL", self.key))
        else:
            self._rung = self._rung or bell is not None

    def close(self) -> None:
        """End a wait that is under way, and let none begin."""
        self._closing = True
        self._changed.set()
