"""Pause: a step that waits, for what tries again after a while."""

from __future__ import annotations

import asyncio
import threading

import msgspec


class Pause(msgspec.Struct, frozen=True):
    """A step that waits between two requests."""

    seconds: float

    def run(self, _: object) -> None:
        """Block this thread."""
        threading.Event().wait(self.seconds)

    async def arun(self, _: object) -> None:
        """Let the event loop go on."""
        await asyncio.sleep(self.seconds)
