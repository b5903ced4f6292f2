"""Lifespans: runs the lifespans of a pool around its work, the async ones on the pool's event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from dayjob.errors import Unavailable
from dayjob.safe_logging import SafeLogger
from dayjob.worker.running.event_loop import LoopExecutor

logger = SafeLogger("dayjob.worker")


class Lifespans:
    """The lifespans that were entered. They are left in reverse order."""

    def __init__(self) -> None:
        self._exits = ExitStack()

    def enter(self, lifespans: Iterable[Any], loop: LoopExecutor | None) -> None:
        """Run each lifespan up to its yield."""
        for lifespan in lifespans:
            self._exits.enter_context(_around(lifespan, loop))

    def close(self) -> None:
        """Run the rest of each lifespan. An error is logged, because the rest of the pool must still be closed."""
        try:
            self._exits.close()
        except Exception:
            logger.exception("a lifespan failed while the pool stopped")


@contextmanager
def _around(lifespan: Any, loop: LoopExecutor | None) -> Iterator[None]:
    if not lifespan.is_async:
        with lifespan.around():
            yield
        return
    if loop is None:
        raise Unavailable("an async lifespan needs the event loop, and this pool has none")
    manager = lifespan.aaround()
    loop.submit(manager.__aenter__)
    try:
        yield
    finally:
        loop.submit(lambda: manager.__aexit__(None, None, None))
