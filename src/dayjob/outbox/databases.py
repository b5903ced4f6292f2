"""How an outbox reaches its database: through SQLAlchemy, sync or async, or through psycopg."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from dayjob.errors import BadOption
from dayjob.outbox.tables import Dialect, Execute

T = TypeVar("T")

_NAMED = re.compile(r"%\((\w+)\)s")


class Database(Protocol):
    """A database of an outbox."""

    dialect: Dialect
    #: Seconds after which the relay sends a row that its writer has not sent.
    patience: float

    def run(self, work: Callable[[Execute], T]) -> T:
        """Call `work` in a transaction of its own, on this thread."""


def database_of(target: Any) -> Database:
    """The database behind an engine, a connection string, or a function that connects. Raises BadOption."""
    kind = {one.__name__ for one in type(target).__mro__}
    if "AsyncEngine" in kind:
        return AsyncEngineDatabase(target)
    if "Engine" in kind:
        return EngineDatabase(target)
    if isinstance(target, str) and target.startswith(("postgresql://", "postgres://")):
        import psycopg  # noqa: PLC0415 - only programs that use it have it

        return PsycopgDatabase(lambda: psycopg.connect(target))
    if callable(target):
        return PsycopgDatabase(target)
    raise BadOption(
        f"Outbox({target!r}): give an engine of SQLAlchemy, a postgresql:// URL for psycopg, or a function that connects"
    )


class EngineDatabase:
    """SQLAlchemy's Engine."""

    patience = 5.0

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.dialect: Dialect = engine.dialect.name

    def run(self, work: Callable[[Execute], T]) -> T:
        """See Database."""
        with self._engine.begin() as connection:
            return work(sqlalchemy_execute(connection))


class AsyncEngineDatabase:
    """SQLAlchemy's AsyncEngine. The relay has no event loop, so each round runs one, on connections of its own."""

    patience = 5.0

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.dialect: Dialect = engine.dialect.name

    def run(self, work: Callable[[Execute], T]) -> T:
        """See Database."""
        return asyncio.run(self._run(work))

    async def _run(self, work: Callable[[Execute], T]) -> T:
        from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - the program has loaded it
        from sqlalchemy.pool import NullPool  # noqa: PLC0415

        # The creator and the events of the program's own pool connect as the program does: with its arguments, its tokens
        # and its settings of new connections.
        own = self._engine.sync_engine.pool
        connections = NullPool(own._creator, _dispatch=own.dispatch)
        engine = create_async_engine(self._engine.url, pool=connections)
        async with engine.begin() as connection:
            found: T = await connection.run_sync(lambda inner: work(sqlalchemy_execute(inner)))
        await engine.dispose()
        return found


class PsycopgDatabase:
    """psycopg, which reports no commits: the relay sends every row, at its next round."""

    dialect: Dialect = "postgresql"
    patience = 0.0

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    def run(self, work: Callable[[Execute], T]) -> T:
        """See Database."""
        with self._connect() as connection:
            return work(cursor_execute(connection))


def sqlalchemy_execute(connection: Any) -> Execute:
    """Run statements on a Session or Connection of SQLAlchemy."""
    from sqlalchemy import text  # noqa: PLC0415 - the program has loaded it

    def execute(statement: str, values: Mapping[str, Any]) -> tuple[list[Any], int]:
        result = connection.execute(text(_NAMED.sub(r":\1", statement)), dict(values))
        return (result.fetchall() if result.returns_rows else []), result.rowcount

    return execute


def cursor_execute(connection: Any) -> Execute:
    """Run statements on a connection of psycopg or Django."""

    def execute(statement: str, values: Mapping[str, Any]) -> tuple[list[Any], int]:
        with connection.cursor() as cursor:
            # Without values the drivers take a percent sign as it is.
            cursor.execute(statement, dict(values) or None)
            return (cursor.fetchall() if cursor.description else []), cursor.rowcount

    return execute
