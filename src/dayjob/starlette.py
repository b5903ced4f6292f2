"""FastAPI and Starlette: a lifespan that closes what a pool opened, and the console to mount.

app = FastAPI(lifespan=lifespan(pool))
app.mount("/ops/jobs", console(pool, role=role))
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount

from dayjob.admin.client import AsyncAdmin
from dayjob.pool import WorkerPool
from dayjob.store import addresses
from dayjob.web import WebOptions, create_app
from dayjob.web.console import WebConsole
from dayjob.web.streams import ending_streams

#: What FastAPI and Starlette take as `lifespan`.
LifespanOf = Callable[[Any], contextlib.AbstractAsyncContextManager[Any]]


def lifespan(pool: WorkerPool[Any], *, run: bool = False, inner: LifespanOf | None = None) -> LifespanOf:
    """A lifespan for the app that enqueues jobs of `pool`.

    With `run`, the pool's workers run in this process while the app is up, which is handy in development. `inner` is the
    app's own lifespan; it runs inside this one, and what it yields is the state of the app.
    """

    @contextlib.asynccontextmanager
    async def manage(app: Any) -> AsyncIterator[Any]:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(_close_enqueuers, pool)
            if run:
                await stack.enter_async_context(pool)
            for mounted in _consoles(app):
                await stack.enter_async_context(mounted.router.lifespan_context(mounted))
            stack.enter_context(ending_streams([one.state.console for one in _consoles(app)]))
            yield await stack.enter_async_context(inner(app)) if inner is not None else None

    return manage


def console(pool: WorkerPool[Any], *, hide: tuple[str, ...] = (), **options: Any) -> Starlette:
    """The console for the pool's server and namespace, to mount in an app. `options` are those of WebOptions.

    `hide` are arguments that are hidden beside those that look like secrets. Raises BadOption.
    """
    redis = addresses.pool_redis(pool.redis)
    return create_app(AsyncAdmin(pool.namespace, redis=redis, hide=hide), options=WebOptions(**options))


async def _close_enqueuers(pool: WorkerPool[Any]) -> None:
    """Close the connections of this event loop and of this process, if the app opened any."""
    made = vars(pool)
    if "async_enqueuer" in made:
        await pool.async_enqueuer.close()
    if "enqueuer" in made:
        await asyncio.to_thread(pool.enqueuer.close)


def _consoles(app: Any) -> list[Starlette]:
    """The consoles that are mounted in the app. Starlette does not run the lifespans of mounted apps."""
    mounted = [route.app for route in app.routes if isinstance(route, Mount)]
    apps = [one for one in mounted if isinstance(one, Starlette)]
    return [one for one in apps if isinstance(getattr(one.state, "console", None), WebConsole)]
