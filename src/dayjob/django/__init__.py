"""Django: one pool from the settings, `manage.py dayjob`, jobs that are sent at the commit, the console for staff.

INSTALLED_APPS = [..., "dayjob.django"]
DAYJOB = {"NAMESPACE": "shop", "REDIS": "redis://localhost:6379/0"}

`from dayjob.django import pool` in the `jobs.py` of an app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dayjob.handlers.signature import NoContext
    from dayjob.pool import WorkerPool

    #: The pool of this Django project. It is made from the settings at first use.
    pool: WorkerPool[NoContext]

__all__ = ["pool"]


def __getattr__(name: str) -> Any:
    """Make the pool at its first use. Django imports this package before the apps are ready."""
    if name != "pool":
        raise AttributeError(f"module 'dayjob.django' has no attribute {name!r}")
    from dayjob.django.project import project_pool  # noqa: PLC0415 - the reason is above

    return project_pool()
