"""Console: what one app shares between its requests: the admin layer, the options, the live stream; who asks, and as what."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from starlette.requests import HTTPConnection

from dayjob.admin.client import AsyncAdmin
from dayjob.errors import StoreError, UsageError
from dayjob.web.durations import DurationSums
from dayjob.web.events import Hub, pulse
from dayjob.web.options import Role, WebOptions

logger = logging.getLogger("dayjob.web")

T = TypeVar("T")

#: Where the guard leaves what it found out about a request.
ROLE = "dayjob.role"
ACTOR = "dayjob.actor"


class Console:
    """One console over one namespace."""

    def __init__(self, admin: AsyncAdmin, options: WebOptions) -> None:
        self.admin = admin
        self.options = options
        self.hub = Hub(lambda: pulse(admin))
        self.durations = DurationSums()
        self._work: set[asyncio.Task[Any]] = set()
        #: What is being read for several who asked.
        self._shared: dict[str, asyncio.Task[Any]] = {}

    def role_of(self, request: HTTPConnection) -> Role:
        """What the one who asks may do; the guard has let nobody else in."""
        role: Role = request.scope.get(ROLE, "viewer")
        return role

    def actor_of(self, request: HTTPConnection) -> str:
        """Who asks, as the audit shows it."""
        actor: str = request.scope.get(ACTOR, "somebody (web)")
        return actor

    def may_act(self, request: HTTPConnection) -> bool:
        """Whether the one who asks can change anything."""
        return self.role_of(request) == "operator" and not self.options.read_only

    def admin_for(self, request: HTTPConnection) -> AsyncAdmin:
        """The admin layer, acting for the one who asks."""
        return self.admin.acting(self.actor_of(request))

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Work that goes on to its next safe point when the one who asked is gone."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._ended)
        return task

    async def shared(self, key: str, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `read` answers. Those who ask the same while it is under way get the same answer."""
        task = self._shared.get(key)
        if task is None:
            task = self._shared[key] = asyncio.get_running_loop().create_task(read())
            task.add_done_callback(partial(self._forget_shared, key))
        # One who goes away does not end it for the others.
        found: T = await asyncio.shield(task)
        return found

    def _forget_shared(self, key: str, task: asyncio.Task[Any]) -> None:
        del self._shared[key]
        if not task.cancelled():
            # Read here too: all who asked may be gone, and the error would be logged as forgotten.
            task.exception()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        # Who asked is told of mistakes at once; of what comes later perhaps nobody is there to be told.
        if error is not None and not isinstance(error, UsageError):
            logger.warning(
                "work on many jobs ended before its end: %s",
                error,
                exc_info=None if isinstance(error, StoreError) else error,
            )

    async def close(self) -> None:
        """End the live streams, wait for work under way, close the connections."""
        self.hub.close()
        if self._work:
            await asyncio.wait(self._work, timeout=5.0)
        await self.admin.close()
