"""The outbox of a Django project: `DAYJOB = {"OUTBOX": True}`. Its tables are models of the app, made by `migrate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from django.db import connections, transaction

from dayjob.django.project import UseAsyncEnqueue, on_event_loop, settings_of_project
from dayjob.options import Commit
from dayjob.outbox import tables
from dayjob.outbox.databases import Database, Transact, cursor_execute
from dayjob.outbox.outbox import deliver
from dayjob.outbox.relay import Relay
from dayjob.outbox.rows import rows_of
from dayjob.outbox.tables import Dialect, Execute

T = TypeVar("T")


class DjangoDatabase(Database):
    """The database of the setting DATABASE. Its connection stays open, as Django decides."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self.dialect = cast("Dialect", connections[alias].vendor)

    @contextmanager
    def transactions(self) -> Iterator[Transact]:
        """See Database."""
        connection = connections[self._alias]
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()

        def transact(work: Callable[[Execute], T], /) -> T:
            with transaction.atomic(using=self._alias):
                return work(cursor_execute(connection))

        yield transact


class DjangoOutbox:
    """Finds the transaction by itself; `using(session="other")` names another database."""

    def __init__(self) -> None:
        self._alias = settings_of_project().database

    def commit_of(
        self, session: Any, namespace: str, new_jobs: Sequence[Any], *, testing: bool
    ) -> Commit | None:
        """See TransactionOutbox."""
        alias = session or self._alias
        in_loop = on_event_loop()
        if not in_loop and not connections[alias].in_atomic_block:
            return None
        rows = [] if testing else rows_of(namespace, new_jobs)
        ids = [row.id for row in rows]

        def commit(send: Callable[[], Any]) -> None:
            if on_event_loop():
                # Async code calls this again in the thread that has Django's connections.
                raise UseAsyncEnqueue
            if not connections[alias].in_atomic_block:
                send()
                return
            execute = cursor_execute(connections[alias])
            for row in rows:
                tables.insert(execute, row)
            transaction.on_commit(lambda: deliver(send, lambda: _mark(alias, ids)), using=alias)

        return commit

    def relay_step(self, pool: Any) -> Callable[[], float]:
        """See TransactionOutbox."""
        return Relay(DjangoDatabase(self._alias), pool).step


def _mark(alias: str, ids: list[str]) -> None:
    if ids:
        tables.mark_sent(cursor_execute(connections[alias]), ids)
