"""SharedLink: the pool's third connection, for everything that is neither exchange nor bell."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TypeVar

from dayjob.store.op import Op
from dayjob.store.sync import Link

T = TypeVar("T")


class SharedLink:
    """A link that several loops use in turn."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()

    def run(self, op: Op[T]) -> T:
        """Run one op when it is our turn."""
        with self._lock:
            return self._link.run(op)

    def run_many(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """Run several ops in one round trip."""
        with self._lock:
            return self._link.run_many(ops)

    def interrupt(self) -> None:
        """End a blocking op of another thread."""
        self._link.interrupt()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._link.close()
