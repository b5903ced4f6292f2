"""The API of the console: a table of endpoints, and the routes that serve them."""

from __future__ import annotations

from starlette.routing import Route

from dayjob.web.v1 import batches, figures, history, jobs, keys, limits, queues, search, system, workflows

ENDPOINTS = (
    *queues.ENDPOINTS,
    *limits.ENDPOINTS,
    *keys.ENDPOINTS,
    *jobs.ENDPOINTS,
    *batches.ENDPOINTS,
    *workflows.ENDPOINTS,
    *history.ENDPOINTS,
    *search.ENDPOINTS,
    *figures.ENDPOINTS,
    *system.ENDPOINTS,
)


def routes() -> list[Route]:
    """The routes of all endpoints."""
    return [endpoint.route() for endpoint in ENDPOINTS]
