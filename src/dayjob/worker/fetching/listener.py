"""Listener: waits for a bell while the pool has free slots, on its own connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from dayjob.errors import StoreError
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.ops import consume

#: Seconds of one wait. An idle pool sends one command in this time.
WAIT_SECONDS = 3.0


class Listener:
    """Blocks on the bells of the armed names, and calls the fetcher when one rings."""

    def __init__(
        self,
        keys: Keys,
        link: Link,
        names: Sequence[str],
        on_bell: Callable[[str], None],
        on_error: Callable[[], None],
    ) -> None:
        self._link = link
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
            bell = self._link.run(consume.wait_bell(self._bells, WAIT_SECONDS))
        except StoreError:
            # An exchange over all names repairs a bell of a wrong type, and shows what Redis lost during an outage.
            if not self.closing:
                self._on_error()
            raise
        if bell is not None:
            # The fetcher arms the listener again when it has free slots after this bell's jobs.
            self._armed.clear()
            self._on_bell(self._names[bell])
        return 0.0

    def close(self) -> None:
        """End a wait that is under way."""
        self.closing = True
        self._armed.set()
        self._link.interrupt()
