"""Listener: waits for a bell while the pool has free slots, on its own connection.

The listener of the leader also waits for the bell of due jobs, on behalf of the chores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from dayjob.errors import StoreError
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.ops import consume
from dayjob.worker.chores.due_bell import DueBell
from dayjob.worker.state import PoolState

#: Seconds of one wait. An idle pool sends one command in this time.
WAIT_SECONDS = 3.0
#: The same while some names cannot run, because a wait does not notice that they can run again.
PARTIAL_WAIT_SECONDS = 1.0


class Listener:
    """Blocks on the bells of the armed names, and calls the fetcher when one rings."""

    def __init__(
        self,
        keys: Keys,
        link: Link,
        names: Sequence[str],
        on_bell: Callable[[str], None],
        on_error: Callable[[], None],
        *,
        state: PoolState,
        due: DueBell,
    ) -> None:
        self._link = link
        self._state = state
        self._due = due
        self._on_bell = on_bell
        #: Called when waiting for a bell failed.
        self._on_error = on_error
        self._armed = threading.Event()
        self._bell = {name: keys.bell(name) for name in names}
        self._names = {bell: name for name, bell in self._bell.items()}
        self._bells: list[str] = []
        self.closing = False

    def arm(self, names: Collection[str]) -> None:
        """Wait for the bells of these names until one of them rings."""
        self._bells = [self._bell[name] for name in names]
        self._armed.set()

    def step(self) -> float:
        """Wait until the listener is armed, and then for one bell."""
        self._armed.wait()
        if self.closing or not self._bells:
            self._armed.clear()
            return 0.0
        try:
            bell = self._wait()
        except StoreError:
            self._due.listener_stopped()
            # An exchange over all names repairs a bell of a wrong type, and shows what Redis lost during an outage.
            if not self.closing:
                self._on_error()
            raise
        if bell == self._due.key:
            self._due.ring()
        elif bell is not None:
            # The fetcher arms the listener again when it has free slots after this bell's jobs.
            self._armed.clear()
            self._on_bell(self._names[bell])
            self._due.listener_stopped()
        return 0.0

    def _wait(self) -> str | None:
        bells = self._bells
        seconds = WAIT_SECONDS if len(bells) == len(self._bell) else PARTIAL_WAIT_SECONDS
        if self._state.leads:
            self._due.listener_waits()
            # First, because Redis takes the first of the keys that has a bell.
            return self._link.run(consume.wait_bell([self._due.key, *bells], seconds))
        self._due.listener_stopped()
        return self._link.run(consume.wait_bell(bells, seconds))

    def close(self) -> None:
        """End a wait that is under way."""
        self.closing = True
        self._armed.set()
        self._link.interrupt()
