"""Handlers as a pool calls them: with the pool's middleware around them, or directly if they need nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dayjob.handlers.registry import JobType
from dayjob.instruments import INSTRUMENTS
from dayjob.middleware import Middleware, compose_async, compose_sync
from dayjob.options import JobOptions, PoolOptions
from dayjob.pool import WorkerPool
from dayjob.store.ops.history import HistoryCaps
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.state import PoolState


def new_pool_job_type(
    pool: WorkerPool[Any], job_type: JobType[..., ..., Any], state: PoolState
) -> PoolJobType:
    """A job type as a running pool uses it."""
    composed, direct = _composed(pool, job_type), _direct(pool, job_type)
    history = _history_caps(pool.options, job_type.options)
    hooks = INSTRUMENTS.hooks(pool.hooks)
    found = PoolJobType(job_type, composed, state, direct, hooks, history)
    if job_type.options.atomic:
        found.place = pool.enqueuer.sender.place
    return found


def _history_caps(pool: PoolOptions, job_type: JobOptions) -> HistoryCaps:
    """What the history keeps of a job type: by its own options, else by those of the pool."""
    count, age = job_type.history_count, job_type.history_age
    return HistoryCaps(pool.history_count if count is None else count, age or pool.history_age)


def _composed(pool: WorkerPool[Any], job_type: JobType[..., ..., Any]) -> Callable[[Any, Any], Any]:
    """The handler of a job type wrapped in the pool's middleware. It takes a context and a job."""
    fn, call_args = job_type.fn, job_type.call_args
    context, wants_job = job_type.wants_context, job_type.wants_job

    def handler(ctx: Any, job: Any) -> Any:
        args, kwargs = call_args(job.raw_args)
        if context:
            return fn(ctx, job, *args, **kwargs) if wants_job else fn(ctx, *args, **kwargs)
        return fn(job, *args, **kwargs) if wants_job else fn(*args, **kwargs)

    async def async_handler(ctx: Any, job: Any) -> Any:
        return await handler(ctx, job)

    if job_type.is_async:
        return compose_async(_middlewares(pool), async_handler)
    return compose_sync(_middlewares(pool), handler)


def _middlewares(pool: WorkerPool[Any]) -> list[Middleware]:
    if not INSTRUMENTS.installed:
        return pool.middlewares
    find_server = pool.enqueuer.sender.find_server
    return [*INSTRUMENTS.middlewares(pool.namespace, pool.periodics, find_server), *pool.middlewares]


def _direct(pool: WorkerPool[Any], job_type: JobType[..., ..., Any]) -> Callable[[Any], Any] | None:
    """A shortcut for handlers that take only their arguments. None if context, job or middleware are needed."""
    if job_type.wants_context or job_type.wants_job or pool.middlewares or INSTRUMENTS.installed:
        return None
    fn, call_args = job_type.fn, job_type.call_args

    def direct(raw: Any) -> Any:
        args, kwargs = call_args(raw)
        return fn(*args, **kwargs) if kwargs else fn(*args)

    return direct
