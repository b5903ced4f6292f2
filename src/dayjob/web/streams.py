"""Ends the event streams of a console that another server serves, before that server waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

from dayjob.web.console import WebConsole


@contextlib.contextmanager
def ending_streams(consoles: Sequence[WebConsole]) -> Iterator[None]:
    """End the consoles' event streams at TERM and INT, before the server's own handler runs.

    A server waits for open connections before it ends the lifespan, and an open page keeps its stream open.
    """
    if not consoles or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def end(number: int, frame: FrameType | None) -> None:
        for one in consoles:
            loop.call_soon_threadsafe(one.end_streams)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number, handler in before.items():
        # A handler of asyncio or C, or none at all, cannot be called from here.
        if callable(handler):
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is end:
                signal.signal(number, handler)
