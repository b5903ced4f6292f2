"""How an outbox reaches its database: through SQLAlchemy, sync or async, or through psycopg."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

from dayjob.errors import BadOption
from dayjob.outbox.tables import Dialect, Execute

T = TypeVar("T")

_NAMED = re.compile(r"%\((\w+)\)s")


class Transact(Protocol):
    """Calls a function in a transaction of its own, on this thread."""

    def __call__(self, work: Callable[[Execute], T], /) -> T: ...


class Database(ABC):
    """A database of an outbox."""

    dialect: Dialect
    #: Seconds after which the relay sends a row that its writer has not sent.
    patience = 5.0

    @abstractmethod
    def transactions(self) -> AbstractContextManager[Transact]:
        """Transactions on one connection, one after the other. It is opened for the block, and then closed or given back."""

    def run(self, work: Callable[[Execute], T]) -> T:
        """Call `work` in a transaction of its own, on this thread."""
        with self.transactions() as transact:
            return transact(work)


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


class EngineDatabase(Database):
    """SQLAlchemy's Engine."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.dialect = engine.dialect.name

    @contextmanager
    def transactions(self) -> Iterator[Transact]:
        """See Database."""
        with self._engine.connect() as connection:

            def transact(work: Callable[[Execute], T], /) -> T:
                with connection.begin():
                    return work(sqlalchemy_execute(connection))

            yield transact


class AsyncEngineDatabase(Database):
    """SQLAlchemy's AsyncEngine. The relay has no event loop, so each block runs one, with a connection of its own."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.dialect = engine.dialect.name

    @contextmanager
    def transactions(self) -> Iterator[Transact]:
        """See Database."""
        with asyncio.Runner() as loop:
            engine = self._unpooled()
            connection = loop.run(_opened(engine))

            async def run(work: Callable[[Execute], T]) -> T:
                async with connection.begin():
                    found: T = await connection.run_sync(lambda inner: work(sqlalchemy_execute(inner)))
                return found

            def transact(work: Callable[[Execute], T], /) -> T:
                return loop.run(run(work))

            try:
                yield transact
            finally:
                loop.run(connection.close())
                loop.run(engine.dispose())

    def _unpooled(self) -> Any:
        from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - the program has loaded it
        from sqlalchemy.pool import NullPool  # noqa: PLC0415

        # The creator and the events of the program's own pool connect as the program does: with its arguments, its tokens
        # and its settings of new connections.
        own = self._engine.sync_engine.pool
        return create_async_engine(self._engine.url, pool=NullPool(own._creator, _dispatch=own.dispatch))


async def _opened(engine: Any) -> Any:
    return await engine.connect()


class PsycopgDatabase(Database):
    """psycopg, which reports no commits: the relay sends every row, at its next round."""

    dialect = "postgresql"
    patience = 0.0

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    @contextmanager
    def transactions(self) -> Iterator[Transact]:
        """See Database."""
        with self._connect() as connection:

            def transact(work: Callable[[Execute], T], /) -> T:
                with connection.transaction():
                    return work(cursor_execute(connection))

            yield transact


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
