"""The pool of a Django project: the setting DAYJOB, the transactions, and the connections around jobs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.core.cache import close_caches
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import connections, reset_queries, transaction
from django.utils.module_loading import import_string

from dayjob.errors import BadOption
from dayjob.handlers.signature import NoContext
from dayjob.names import suggest
from dayjob.options import PoolOptions
from dayjob.pool import WorkerPool

_lock = threading.Lock()
_made: list[WorkerPool[Any]] = []


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """The setting DAYJOB without the options of the pool."""

    #: The module of each app that defines jobs.
    modules: tuple[str, ...]
    #: Whether jobs that are enqueued in a transaction are sent at its commit.
    on_commit: bool
    #: Whether they are rows of the transaction until then.
    outbox: bool
    #: The database whose transactions count.
    database: str
    #: The permission of those who may change something in the console.
    operator: str
    #: The arguments of WorkerPool.
    pool: Mapping[str, Any]


#: Settings that are arguments of WorkerPool but none of its PoolOptions.
_POOL = ("NAMESPACE", "REDIS", "DEFAULTS", "CODECS", "CONTEXT")
_OWN = ("MODULES", "ON_COMMIT", "OUTBOX", "DATABASE", "OPERATOR")


def settings_of_project() -> ProjectSettings:
    """Read the setting DAYJOB. Raises ImproperlyConfigured."""
    given = getattr(settings, "DAYJOB", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f'DAYJOB={given!r}: write a dict, such as {{"NAMESPACE": "shop"}}')
    options = tuple(field.name.upper() for field in fields(PoolOptions))
    for name in given:
        if name not in (*_OWN, *_POOL, *options):
            near = suggest(str(name).upper(), (*_OWN, *_POOL, *options))
            raise ImproperlyConfigured(f"DAYJOB has no setting {name!r}{near}")
    modules = given.get("MODULES", ["jobs"])
    if isinstance(modules, str):
        raise ImproperlyConfigured(f'DAYJOB: MODULES={modules!r}: write a list, such as ["jobs"]')
    return ProjectSettings(
        modules=tuple(modules),
        on_commit=bool(given.get("ON_COMMIT", True)),
        outbox=bool(given.get("OUTBOX", False)),
        database=given.get("DATABASE", "default"),
        operator=given.get("OPERATOR", "dayjob.operate_jobs"),
        pool={name.lower(): value for name, value in given.items() if name not in _OWN},
    )


def project_pool() -> WorkerPool[Any]:
    """The pool of this process, made at the first call. Raises ImproperlyConfigured."""
    if not apps.loading and not apps.ready:
        # A worker's process, or a script: it imports the pool first.
        django.setup()
    with _lock:
        if not _made:
            _made.append(_make(settings_of_project()))
        return _made[0]


def _make(given: ProjectSettings) -> WorkerPool[Any]:
    options = dict(given.pool)
    context = options.pop("context", NoContext)
    try:
        if isinstance(context, str):
            context = import_string(context)
        pool: WorkerPool[Any] = WorkerPool(
            context,
            on_commit=commit_hook(given.database) if given.on_commit else None,
            outbox="django" if given.outbox else None,
            **options,
        )
    except (BadOption, ImportError) as error:
        raise ImproperlyConfigured(f"DAYJOB: {error}") from error
    pool.middleware(only="sync")(_close_connections)
    pool.middleware(only="async")(_aclose_connections)
    return pool


class UseAsyncEnqueue(SynchronousOnlyOperation):  # type: ignore[misc]  # Django has no types
    """Raised by an enqueue of sync code on an event loop, where Django's transactions cannot be used."""

    def __init__(self) -> None:
        super().__init__(
            "enqueue() waits for Django's transaction, which async code cannot use: write await job.aenqueue(...)"
        )


def commit_hook(database: str) -> Callable[[Callable[[], Any]], None]:
    """The `on_commit` of a pool: sends at the commit of this database, or at once outside of transactions."""

    def on_commit(send: Callable[[], Any]) -> None:
        connection = connections[database]
        if connection.connection is None and not connection.in_atomic_block and not on_event_loop():
            # Without a connection there is no transaction, and Django would open one to find that out.
            send()
            return
        try:
            transaction.on_commit(send, using=database)
        except SynchronousOnlyOperation:
            raise UseAsyncEnqueue from None

    return on_commit


def on_event_loop() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# Django closes connections between requests. Jobs are not requests, and a worker's threads live for long: without this,
# a connection that the database has closed would fail every further job of its thread.


def _open() -> set[str]:
    """Before a job: forget the queries of the last one, and connections that are broken or too old.

    Returns the databases with a transaction that was open before the job, such as that of a TestCase.
    """
    reset_queries()
    inside = {one.alias for one in connections.all(initialized_only=True) if one.in_atomic_block}
    _close(inside)
    return inside


def _close(keep: Collection[str]) -> None:
    """Close the connections of this thread that are broken, too old, or left in a transaction."""
    for one in connections.all(initialized_only=True):
        if one.alias not in keep:
            one.close_if_unusable_or_obsolete()
            # The first query of the next job then replaces a connection that was lost meanwhile, whatever CONN_HEALTH_CHECKS
            # is: between two jobs of a worker more time can pass than between two requests.
            one.health_check_enabled = True


def _end(keep: Collection[str]) -> None:
    _close(keep)
    close_caches()


def _aend() -> None:
    # Async jobs share a thread, so an open transaction may belong to another one.
    _end({one.alias for one in connections.all(initialized_only=True) if one.in_atomic_block})


def _close_connections() -> Iterator[None]:
    """Around every sync job, in its thread."""
    inside = _open()
    try:
        yield
    finally:
        _end(inside)


async def _aclose_connections() -> AsyncIterator[None]:
    """Around every async job, in the thread where Django's async ORM has its connections."""
    await sync_to_async(_open)()
    try:
        yield
    finally:
        await sync_to_async(_aend)()
