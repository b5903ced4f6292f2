"""WebConsole: shared by all requests of one app: the admin layer, the options, the event stream, and the user's role."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

from starlette.requests import HTTPConnection

from dayjob.admin.client import AsyncAdmin
from dayjob.errors import BadOption, StoreError, UsageError
from dayjob.web.durations import DurationSums
from dayjob.web.events import Hub, pulse
from dayjob.web.options import Role, WebOptions

logger = logging.getLogger("dayjob.web")

T = TypeVar("T")

#: Where the guard stores the user and role of a request.
ROLE = "dayjob.role"
ACTOR = "dayjob.actor"


#: Below this address are the consoles of further namespaces.
SPACES = "/ns"


class Closes(Protocol):
    """A stream that a console ends when it stops."""

    def close(self) -> None: ...


class WebConsole:
    """One console over one namespace."""

    def __init__(self, admin: AsyncAdmin, options: WebOptions, mounted_at: str = "") -> None:
        self.admin = admin
        self.options = options
        #: Its address in the app that serves it; "" for the app itself.
        self.mounted_at = mounted_at
        #: The consoles of all namespaces that the app serves, the first at its root.
        self.all: list[WebConsole] = [self]
        self.hub = Hub(lambda: pulse(admin))
        #: The streams of jobs that clients read.
        self.job_streams: set[Closes] = set()
        self.durations = DurationSums()
        self._work: set[asyncio.Task[Any]] = set()
        #: Reads in progress that several requests share.
        self._shared: dict[str, asyncio.Task[Any]] = {}

    @property
    def others(self) -> list[WebConsole]:
        """The consoles of further namespaces that this one serves; none if it is one of them."""
        return [] if self.mounted_at else self.all[1:]

    def add(self, other: WebConsole) -> None:
        """Serve a further namespace. Raises BadOption if it is served already, or cannot be part of an address."""
        if not re.fullmatch(r"[\w.:-]+", other.admin.namespace):
            raise BadOption(
                f"the namespace {other.admin.namespace!r} cannot be part of an address: serve it with a console of its own"
            )
        if any(other.admin.namespace == one.admin.namespace for one in self.all):
            raise BadOption(f"the namespace {other.admin.namespace!r} is given twice")
        self.all.append(other)
        other.all = self.all

    def end_streams(self) -> None:
        """End the event streams of all namespaces, so that open pages do not delay a stop."""
        for one in (self, *self.others):
            one.hub.close()
            for stream in list(one.job_streams):
                stream.close()

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
        self.end_streams()
        for one in self.others:
            await one.close()
        if self._work:
            await asyncio.wait(self._work, timeout=5.0)
        await self.admin.close()
