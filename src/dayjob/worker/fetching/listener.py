"""Listener: waits for a bell while the pool has room, on a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from dayjob.errors import StoreError
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.ops import consume

#: Seconds one wait lasts; an idle pool costs one command in this time.
WAIT_SECONDS = 3.0


class Listener:
    """Blocks on the bells of all names; whoever pops one tells the fetcher."""

    def __init__(
        self,
        keys: Keys,
        link: Link,
        names: Sequence[str],
        heard: Callable[[str], None],
        look: Callable[[], None],
    ) -> None:
        self._link = link
        self._heard = heard
        #: Called when a bell cannot be heard.
        self._look = look
        self._armed = threading.Event()
        self._bell = {name: keys.bell(name) for name in names}
        self._names = {bell: name for name, bell in self._bell.items()}
        self._bells: list[str] = []
        self.closing = False

    def arm(self, names: Collection[str]) -> None:
        """There is room for jobs of these names: listen until one of their bells rings."""
        self._bells = [self._bell[name] for name in names]
        self._armed.set()

    def step(self) -> float:
        """Wait for one bell, if there is room for what it announces."""
        self._armed.wait()
        if self.closing or not self._bells:
            self._armed.clear()
            return 0.0
        try:
            bell = self._link.run(consume.wait_bell(self._bells, WAIT_SECONDS))
        except StoreError:
            # An exchange over all names mends a bell of a wrong type, and shows what Redis forgot while it was away.
            if not self.closing:
                self._look()
            raise
        if bell is not None:
            # Not armed again until the fetcher has looked: it may be busy with what this bell announced.
            self._armed.clear()
            self._heard(self._names[bell])
        return 0.0

    def close(self) -> None:
        """End a wait that is under way."""
        self.closing = True
        self._armed.set()
        self._link.interrupt()
