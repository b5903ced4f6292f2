"""Driver: an enqueuer of either colour, called as if it were a plain one, so that one suite serves both."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import copy_context

from dayjob import AsyncEnqueuer, Enqueuer


class Driver:
    """Runs what is to be awaited in a loop of its own, and passes everything else on."""

    def __init__(self, enqueuer: Enqueuer | AsyncEnqueuer, runner: asyncio.Runner | None) -> None:
        self.enqueuer = enqueuer
        self._runner = runner

    def __getattr__(self, name: str):
        method = getattr(self.enqueuer, name)
        return lambda *args, **kwargs: self.wait(method(*args, **kwargs))

    def wait(self, answer):
        """What an answer comes to, be it plain or to be awaited."""
        if inspect.iscoroutine(answer):
            # A copy, as a task made here would have: a runner keeps the variables of its first call.
            return self._runner.run(answer, context=copy_context())
        return Driver(answer, self._runner) if isinstance(answer, Enqueuer | AsyncEnqueuer) else answer
