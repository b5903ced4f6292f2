"""System checks: the jobs of all apps, and the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004 - Django's name

from dayjob.django.project import project_pool
from dayjob.errors import UsageError
from dayjob.store import addresses


@register("dayjob")  # type: ignore[untyped-decorator]  # Django has no types
def check_jobs(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """Every signature and schedule of the pool."""
    del app_configs
    try:
        problems = project_pool().check()
    except UsageError as error:
        problems = [error]
    return [Error(str(problem), id="dayjob.E001") for problem in problems]


@register("dayjob", deploy=True)  # type: ignore[untyped-decorator]  # Django has no types
def check_server(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """In production the jobs belong on a server that outlives this machine."""
    del app_configs
    found = addresses.resolve(addresses.pool_redis(project_pool().redis))
    if settings.DEBUG or found.origin != addresses.FALLBACK:
        return []
    return [
        Warning(
            "No Redis server is named, so jobs are kept by a server that dayjob starts on this machine.",
            hint='Set DAYJOB = {"REDIS": "redis://..."}, or the variable DAYJOB_REDIS_URL.',
            id="dayjob.W001",
        )
    ]
