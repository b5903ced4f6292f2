"""SQLAlchemy without an outbox: send jobs after the commit of a session.

mail.using(on_commit=after_commit(session)).enqueue(user_id=7)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from dayjob.options import Commit

#: Where a session keeps what to call after its commit.
_WAITING = "dayjob.after_commit"

#: The transaction and the savepoints in which a function was registered, and the function.
Waiting = list[tuple[tuple[SessionTransaction, ...], Callable[[], Any]]]


def after_commit(session: Any) -> Commit:
    """An `on_commit` for a Session or AsyncSession: calls after its commit, and never after a rollback.

    What is enqueued inside a savepoint that is rolled back is not sent. If no transaction is open, one is begun, and the
    job is sent at its commit.
    """
    inner: Session = getattr(session, "sync_session", session)

    def on_commit(send: Callable[[], Any]) -> None:
        waiting: Waiting | None = inner.info.get(_WAITING)
        if waiting is None:
            waiting = inner.info[_WAITING] = []
            event.listen(inner, "after_commit", _committed)
            event.listen(inner, "after_soft_rollback", _rolled_back)
            event.listen(inner, "after_transaction_end", _ended)
        if not inner.in_transaction():
            inner.begin()
        waiting.append((_open_transactions(inner), send))

    return on_commit


def _open_transactions(session: Session) -> tuple[SessionTransaction, ...]:
    """The innermost savepoint, those around it, and the transaction."""
    found: list[SessionTransaction] = []
    one = session.get_nested_transaction() or session.get_transaction()
    while one is not None:
        found.append(one)
        one = one.parent
    return tuple(found)


def _committed(session: Session) -> None:
    """Something was committed. The release of a savepoint needs nothing yet."""
    if session.in_nested_transaction():
        return
    waiting: Waiting = session.info[_WAITING]
    due = [send for _, send in waiting]
    waiting.clear()
    errors: list[Exception] = []
    for send in due:
        try:
            send()
        except Exception as error:  # the others must be sent all the same
            errors.append(error)
    if errors:
        raise errors[0]


def _rolled_back(session: Session, transaction: SessionTransaction) -> None:
    """A transaction or a savepoint was rolled back, with all savepoints inside it."""
    waiting: Waiting = session.info[_WAITING]
    waiting[:] = [one for one in waiting if transaction not in one[0]]


def _ended(session: Session, transaction: SessionTransaction) -> None:
    """A transaction that is closed without a commit reports no rollback."""
    if transaction.parent is None:
        session.info[_WAITING].clear()
