"""TransactionOutbox: what a pool uses of an outbox, which keeps enqueued jobs as rows of the caller's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dayjob.options import Commit


class TransactionOutbox(Protocol):
    """Jobs that are enqueued in a transaction, as rows of it. `dayjob.outbox.Outbox` is one, and Django has its own."""

    def commit_of(
        self, session: Any, namespace: str, new_jobs: Sequence[Any], *, testing: bool
    ) -> Commit | None:
        """What keeps the jobs in the transaction of `session`, and sends them after its commit.

        None if no transaction is open, so that they are sent at once. With `testing`, no row is written.
        """

    def relay_step(self, pool: Any) -> Callable[[], float]:
        """One round of the relay for a pool. It sends rows that were not sent, and returns the seconds until the next."""
