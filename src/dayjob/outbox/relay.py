"""Relay: sends the rows that their writers did not send, sends rows again to a new server, and deletes old ones."""

from __future__ import annotations

import time
from typing import Any

from dayjob.enqueue.sender import EnqueueRequest
from dayjob.errors import Rejected, StoreError
from dayjob.outbox import tables
from dayjob.outbox.databases import Database, Transact
from dayjob.outbox.tables import Execute
from dayjob.safe_logging import SafeLogger
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops.outbox import publish_outbox, server_identity

logger = SafeLogger("dayjob.outbox")

#: Seconds between two rounds.
ROUND_SECONDS = 1.0
#: Seconds to wait after a round that failed.
RETRY_SECONDS = 5.0
#: Seconds that sent rows are kept, so that they can be sent again to a server that lost them.
KEPT_SECONDS = 600.0
#: Seconds that the marks of `job.once` are kept.
DONE_SECONDS = 30 * 86_400.0


class Relay:
    """The relay of one pool's namespace. Several may run at once: a row's id makes sure that it is stored once."""

    def __init__(self, database: Database, pool: Any) -> None:
        self._database = database
        self._enqueuer = pool.enqueuer
        self._namespace: str = pool.namespace
        self._keys = Keys(self._namespace)
        self._failing = False

    def step(self) -> float:
        """One round. An error of the database does not end it; the rows wait."""
        try:
            sent = self.run_once()
        except StoreError:
            raise
        except Exception as error:  # drivers raise errors of many kinds
            if not self._failing:
                logger.warning("the outbox cannot be relayed: %s: %s", type(error).__name__, error)
            self._failing = True
            return RETRY_SECONDS
        if self._failing:
            logger.info("the outbox is relayed again")
            self._failing = False
        return 0.0 if sent >= tables.MAX_ROWS else ROUND_SECONDS

    def run_once(self) -> int:
        """Send what was not sent. Returns how many rows that were. Raises StoreError, and what the driver raises."""
        server = self._server()
        with self._database.transactions() as transact:
            if server:
                self._meet(server, transact)
            sent, error = transact(self._send)
            transact(self._tidy)
        if error is not None:
            raise error
        return sent

    def _meet(self, server: str, transact: Transact) -> None:
        again = transact(lambda execute: tables.meet_server(execute, self._namespace, server))
        if again:
            logger.warning(
                "the Redis server is another one, or was restarted: %d rows of the outbox are sent again",
                again,
            )

    def _send(self, execute: Execute) -> tuple[int, StoreError | None]:
        """Send and mark rows. An error of Redis is returned, so that those sent before it stay marked."""
        before = time.time() - self._database.patience
        rows = tables.take_unsent(
            execute, self._namespace, before, lock=self._database.dialect == "postgresql"
        )
        done: list[str] = []
        failed: StoreError | None = None
        for row in rows:
            try:
                new_job = row.new_job()
                builder = self._enqueuer._builder
                self._enqueuer.sender.drive(EnqueueRequest(builder, [[new_job]], len, None, 5.0))
            except codec.Broken as error:
                logger.error("row %s of the outbox is no job, so it is skipped: %s", row.id, error)  # noqa: TRY400
            except Rejected as error:
                # Its queue cannot be written, such as a key that another program wrote. Rows of other queues can.
                failed = error
                continue
            except StoreError as error:
                failed = error
                break
            done.append(row.id)
        tables.mark_sent(execute, done)
        return len(rows), failed

    def _tidy(self, execute: Execute) -> None:
        now = time.time()
        tables.delete_old(execute, self._namespace, now - KEPT_SECONDS, now - DONE_SECONDS)
        unsent, oldest = tables.count_unsent(execute, self._namespace)
        age = 0.0 if oldest is None else max(0.0, now - oldest)
        self._enqueuer.run(publish_outbox(self._keys, unsent, age))

    def _server(self) -> str:
        """The identity of the server; "" where this user may not read it."""
        try:
            found: str = self._enqueuer.run(server_identity())
        except Rejected:
            return ""
        return found
