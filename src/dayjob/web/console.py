"""Console: shared by all requests of one app: the admin layer, the options, the event stream, and the user's role."""

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

#: Where the guard stores the user and role of a request.
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
        #: Reads in progress that several requests share.
        self._shared: dict[str, asyncio.Task[Any]] = {}

    def role_of(self, request: HTTPConnection) -> Role:
        """The role of the user. The guard has already refused everyone without one."""
        role: Role = request.scope.get(ROLE, "viewer")
        return role

    def actor_of(self, request: HTTPConnection) -> str:
        """The user, as the audit shows it."""
        actor: str = request.scope.get(ACTOR, "unknown (web)")
        return actor

    def may_act(self, request: HTTPConnection) -> bool:
        """Whether the user may change anything."""
        return self.role_of(request) == "operator" and not self.options.read_only

    def admin_for(self, request: HTTPConnection) -> AsyncAdmin:
        """The admin layer, acting for the user."""
        return self.admin.acting(self.actor_of(request))

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Work that continues to its next safe point if the client disconnects."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._ended)
        return task

    async def shared(self, key: str, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer of `read`. Requests for the same data during the read share the answer."""
        task = self._shared.get(key)
        if task is None:
            task = self._shared[key] = asyncio.get_running_loop().create_task(read())
            task.add_done_callback(partial(self._forget_shared, key))
        # A client that disconnects does not cancel the read for the others.
        found: T = await asyncio.shield(task)
        return found

    def _forget_shared(self, key: str, task: asyncio.Task[Any]) -> None:
        del self._shared[key]
        if not task.cancelled():
            # Retrieved here too: if all clients have disconnected, asyncio would log an exception that was never retrieved.
            task.exception()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        # Usage errors are answered at once. For later errors the client may be gone, so they are logged.
        if error is not None and not isinstance(error, UsageError):
            logger.warning(
                "an action on many jobs failed before its end: %s",
                error,
                exc_info=None if isinstance(error, StoreError) else error,
            )

    async def close(self) -> None:
        """End the event streams, wait for work in progress, close the connections."""
        self.hub.close()
        if self._work:
            await asyncio.wait(self._work, timeout=5.0)
        await self.admin.close()
