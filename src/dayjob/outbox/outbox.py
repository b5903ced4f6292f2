"""Outbox: keeps enqueued jobs as rows of the caller's transaction, sends them after the commit, and relays what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from dayjob.errors import StoreError
from dayjob.options import Commit
from dayjob.outbox import tables
from dayjob.outbox.databases import Database, database_of
from dayjob.outbox.relay import Relay
from dayjob.outbox.rows import rows_of
from dayjob.outbox.sessions import arun_in, kind_of, run_in
from dayjob.safe_logging import SafeLogger
from dayjob.store.ops.produce import NewJob

logger = SafeLogger("dayjob.outbox")


class Outbox:
    """An outbox in the database of an engine of SQLAlchemy, or of psycopg: `WorkerPool(outbox=Outbox(engine))`.

    `target` is an Engine or AsyncEngine, a postgresql:// URL for psycopg, or a function that connects. Raises BadOption.
    """

    def __init__(self, target: Any) -> None:
        self.database: Database = database_of(target)

    def create_tables(self) -> None:
        """Make the tables if they are not there. For production, put `dayjob.outbox.schema(...)` into a migration."""
        self.database.run(lambda execute: tables.execute_all(execute, tables.schema(self.database.dialect)))

    def commit_of(
        self, session: Any, namespace: str, new_jobs: Sequence[NewJob], *, testing: bool
    ) -> Commit | None:
        """See TransactionOutbox."""
        if session is None:
            return None
        kind = kind_of(session)
        rows = [] if testing else rows_of(namespace, new_jobs)

        def work(execute: tables.Execute) -> None:
            for row in rows:
                tables.insert(execute, row)

        def commit(send: Callable[[], Any]) -> Any:
            if kind == "async sqlalchemy":
                return self._akeep(session, work, send, [row.id for row in rows])
            run_in(session, work)
            self._after_commit(session, send, [row.id for row in rows])
            return None

        return commit

    def relay_step(self, pool: Any) -> Callable[[], float]:
        """See TransactionOutbox."""
        return Relay(self.database, pool).step

    async def _akeep(
        self, session: Any, work: Callable[[tables.Execute], None], send: Callable[[], Any], ids: list[str]
    ) -> None:
        await arun_in(session, work)
        loop = asyncio.get_running_loop()

        def later() -> None:
            # Not here: this runs inside the commit, on the event loop, and the outbox's database may be async.
            loop.run_in_executor(None, self._deliver, send, ids)

        self._register(getattr(session, "sync_session", session), later)

    def _after_commit(self, session: Any, send: Callable[[], Any], ids: list[str]) -> None:
        self._register(session, lambda: self._deliver(send, ids))

    @staticmethod
    def _register(session: Any, send: Callable[[], Any]) -> None:
        """Call `send` after the commit of a Session. Connections report no commits: the relay sends their rows."""
        if any(one.__name__ == "Session" for one in type(session).__mro__):
            from dayjob.sqlalchemy import after_commit  # noqa: PLC0415 - the program has loaded SQLAlchemy

            after_commit(session)(send)

    def _deliver(self, send: Callable[[], Any], ids: list[str]) -> None:
        deliver(send, lambda: self.database.run(lambda execute: tables.mark_sent(execute, ids)))


def deliver(send: Callable[[], Any], mark: Callable[[], Any]) -> None:
    """Send rows that were committed a moment ago, and mark them. What fails is left to the relay."""
    try:
        send()
    except StoreError as error:
        logger.warning("Redis did not take a job at the commit, so the relay will send it: %s", error)
        return
    try:
        mark()
    except Exception as error:  # drivers raise errors of many kinds
        logger.warning("a row of the outbox could not be marked, so the relay will: %s", type(error).__name__)
