"""create_app: the console as an ASGI app, to be served alone or mounted in another app."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from dayjob.admin.client import AsyncAdmin
from dayjob.errors import DayjobError
from dayjob.web import events, gocraft, job_streams, openapi, pages, probes, prometheus, v1
from dayjob.web.codes import ErrorCode
from dayjob.web.console import SPACES, WebConsole
from dayjob.web.options import WebOptions
from dayjob.web.render import prepare
from dayjob.web.responses import Refusal, problem, refusal_of, wants_html
from dayjob.web.security import Guard


def create_app(
    admin: AsyncAdmin, *, options: WebOptions | None = None, others: Sequence[AsyncAdmin] = ()
) -> Starlette:
    """The console for the namespace of `admin`. Without a way to sign in it refuses requests from other machines.

    `others` are further namespaces. They are at /ns/NAME, and every page has a switch. Raises BadOption for one that is given twice.
    """
    prepare()
    console = WebConsole(admin, options or WebOptions())
    for one in others:
        console.add(WebConsole(one, console.options, f"{SPACES}/{one.namespace}"))
    mounts = [Mount(one.mounted_at, app=_app(one, _routes(), [])) for one in console.others]
    return _app(console, [*mounts, *_routes()], [Middleware(Guard, console=console)])


def _app(console: WebConsole, routes: Sequence[BaseRoute], middleware: Sequence[Middleware]) -> Starlette:
    app = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={HTTPException: _refused, Refusal: _refused, DayjobError: _refused},
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.console = console
    app.state.openapi = openapi.document(v1.ENDPOINTS)
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    await pages.warm_up(app.state.console)
    yield
    await app.state.console.close()


def _routes() -> list[BaseRoute]:
    """Pages and the API share addresses: a request for HTML gets the page."""
    machine = [*gocraft.routes(), *prometheus.routes()]
    shared = {route.path for route in machine}
    human = pages.routes()
    page_at = {route.path: route for route in human if isinstance(route, Route) and route.path in shared}
    return [
        *probes.routes(),
        *events.routes(),
        *job_streams.routes(),
        *v1.routes(),
        *(_negotiated(route, page_at.get(route.path.rstrip("/"))) for route in machine),
        *(route for route in human if getattr(route, "path", None) not in page_at),
    ]


def _negotiated(route: Route, page: Route | None) -> Route:
    if page is None:
        return route
    machine: Any = route.endpoint
    human: Any = page.endpoint

    async def either(request: Request) -> Response:
        by_browser = request.method in ("GET", "HEAD") and wants_html(request)
        response: Response = await (human if by_browser else machine)(request)
        return response

    return Route(route.path, either, methods=sorted(route.methods or ()))


async def _refused(request: Request, error: Exception) -> Response:
    """An error answer: a page for a browser, else JSON."""
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        code: ErrorCode | None = "no_such_address" if error.status_code == 404 else None
        words = _WORDS.get(error.status_code, error.detail)
        refusal = Refusal(error.status_code, words, "", headers, code=code)
    elif isinstance(error, DayjobError):
        refusal = refusal_of(error)
    else:
        assert isinstance(error, Refusal)  # noqa: S101 - registered for nothing else
        refusal = error
    if not wants_html(request):
        return problem(refusal)
    response: Response = await pages.failure(request, refusal.status, refusal.error, refusal.hint)
    response.headers.update(refusal.headers or {})
    return response


_WORDS = {404: "There is no page at this address.", 405: "This address does not support that method."}
