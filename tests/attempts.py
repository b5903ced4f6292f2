"""Attempts and job types of a pool, for tests that need no server."""

from __future__ import annotations

from typing import Any

from dayjob import WorkerPool
from dayjob.store.codec import Wire
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.state import PoolState


async def _async_handler() -> None: ...


def _handler() -> None: ...


def new_job_type(name: str = "a", *, is_async: bool = False, **options: Any) -> PoolJobType:
    """A job type as a pool runs it."""
    registered = WorkerPool().register(name, _async_handler if is_async else _handler, **options)
    return PoolJobType(registered, lambda *_: None, PoolState())


def new_attempt(number: int = 1, job_type: PoolJobType | None = None, **wire: Any) -> Attempt:
    """An attempt with the token `number`; `wire` are fields of its job."""
    job_type = job_type or new_job_type()
    name = job_type.name
    return Attempt(f"{number}:{name}", name, b"{}", Wire(name, id=f"id{number}", **wire), job_type)
