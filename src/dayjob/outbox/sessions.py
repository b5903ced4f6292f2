"""The caller's transaction: what `using(session=...)` and `job.once(session)` accept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dayjob.errors import BadOption, Discard
from dayjob.outbox import tables
from dayjob.outbox.databases import cursor_execute, sqlalchemy_execute
from dayjob.outbox.tables import Execute


def kind_of(session: Any) -> str:
    """What a session is: "sqlalchemy", "async sqlalchemy", "psycopg", "async psycopg" or "django". Raises BadOption."""
    if session is None or isinstance(session, str):
        return "django"
    for one in type(session).__mro__:
        library = one.__module__.partition(".")[0]
        if library == "sqlalchemy":
            return "async sqlalchemy" if one.__name__.startswith("Async") else "sqlalchemy"
        if library == "psycopg":
            return "async psycopg" if one.__name__.startswith("Async") else "psycopg"
    raise BadOption(
        f"session={session!r}: give a Session, AsyncSession or Connection of SQLAlchemy, or a connection of psycopg"
    )


def run_in(session: Any, work: Callable[[Execute], Any]) -> Any:
    """Run statements in the transaction of a sync session."""
    kind = kind_of(session)
    if kind == "sqlalchemy":
        return work(sqlalchemy_execute(session))
    if kind == "psycopg":
        return work(cursor_execute(session))
    if kind == "django":
        return work(cursor_execute(_django_connection(session or "default")))
    raise BadOption("this session is async: use aenqueue, or await job.aonce(session)")


def arun_in(session: Any, work: Callable[[Execute], Any]) -> Awaitable[Any]:
    """Run statements in the transaction of an async session of SQLAlchemy."""
    if kind_of(session) != "async sqlalchemy":
        raise BadOption("async code needs an AsyncSession or AsyncConnection of SQLAlchemy here")
    found: Awaitable[Any] = session.run_sync(lambda inner: work(sqlalchemy_execute(inner)))
    return found


def _django_connection(alias: str) -> Any:
    """Django's connection to a database, in a transaction. Raises BadOption."""
    from django.db import connections  # noqa: PLC0415 - only programs that use it have it

    if not connections[alias].in_atomic_block:
        raise BadOption("job.once() is part of a transaction: write `with transaction.atomic():` around it")
    return connections[alias]


def once(session: Any, key: str) -> None:
    """Note the job in the transaction. Raises Discard if an earlier attempt that noted it was committed."""
    if not run_in(session, lambda execute: tables.add_done(execute, key)):
        raise Discard("its effect is in the database already")


async def aonce(session: Any, key: str) -> None:
    """`once` with an async session of SQLAlchemy."""
    if not await arun_in(session, lambda execute: tables.add_done(execute, key)):
        raise Discard("its effect is in the database already")
