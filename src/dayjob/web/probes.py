"""Probes for orchestrators: /healthz (this process answers) and /readyz (Redis answers too)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dayjob.errors import DayjobError


async def healthz(request: Request) -> Response:
    """Whether this process answers."""
    del request
    return PlainTextResponse("ok\n")


async def readyz(request: Request) -> Response:
    """Whether Redis answers. Its error is logged, but not sent to clients without a password."""
    try:
        await request.app.state.console.admin.ping()
    except DayjobError:
        return PlainTextResponse("Redis does not answer\n", 503)
    return PlainTextResponse("ok\n")


def routes() -> list[Route]:
    """The addresses of the probes."""
    return [Route("/healthz", healthz), Route("/readyz", readyz)]
