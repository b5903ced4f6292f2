"""The bin: what was deleted in the last ten minutes, and undo, which puts it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from dayjob.admin.session import Session, write_audit
from dayjob.admin.views import BulkProgress, DeletionView, Tally
from dayjob.errors import NothingToUndo
from dayjob.store.ops import bin as store
from dayjob.store.steps import Steps
from dayjob.text import counted


def new_deletion(
    session: Session, action: Literal["delete", "cancel", "purge"], subject: str, *, undo: bool
) -> store.Deletion | None:
    """Where the jobs of an action go; None where they are deleted for good."""
    if not undo:
        return None
    return store.Deletion(session.keys, actor=session.actor, action=action, subject=subject)


def ended(deletion: store.Deletion | None, deleted: int) -> Steps[str]:
    """The id under which an action that has ended can be undone; "" where nothing is in the bin."""
    if deletion is None or not deleted:
        return ""
    yield from deletion.renew()
    return deletion.id


def listing(session: Session) -> Steps[tuple[DeletionView, ...]]:
    """The deletions that can be undone, the newest first."""
    return tuple(map(_view, (yield from store.deletions(session.keys))))


def _view(one: store.StoredDeletion) -> DeletionView:
    about = one.about
    began = one.expires_at - store.KEEP_SECONDS
    return DeletionView(about.id, began, about.actor, about.action, about.subject, one.jobs, one.expires_at)


def undo(
    session: Session,
    deletion: str | None = None,
    *,
    progress: Callable[[BulkProgress], object] | None = None,
) -> Steps[Tally]:
    """Put the jobs of a deletion back where they were; without an id, those of this operator's last one.

    Waiting jobs come back at the head of their queues in their old order, others at their old moments. A job whose unique key
    another job has by now stays in the bin. The beginning of an id is enough. When `progress` answers False, it stops
    there. Raises NothingToUndo.
    """
    found = yield from store.deletions(session.keys)
    chosen = _chosen(session, found, deletion)
    total, subject = chosen.jobs, f"{chosen.about.action} of {chosen.about.subject}"
    yield from write_audit(session, "undo", subject, f"begun with {counted(total, 'job')}")

    def report(searched: int) -> bool:
        return progress is None or progress(BulkProgress(searched, total, searched, searched)) is not False

    answer = yield from store.undo_all(session.keys, chosen, report)
    message = f"{counted(answer.count, 'job')} put back."
    if answer.holder is not None:
        message += (
            f" Jobs whose unique key is taken stay in the bin; job {answer.holder or '(unknown)'} has one."
        )
    if answer.same:
        message += f" {answer.same:,} stay in the bin: the same bytes are there already."
    audited = yield from write_audit(session, "undo", subject, message)
    return Tally(total, total, answer.count, message, audited)


def _chosen(session: Session, found: list[store.StoredDeletion], wanted: str | None) -> store.StoredDeletion:
    if wanted is None:
        mine = [one for one in found if one.about.actor == session.actor]
        if mine:
            return mine[0]
        others = f" Others deleted: {len(found)}; name one." if found else ""
        raise NothingToUndo(
            f"{session.actor} deleted nothing in the last ten minutes.{others}\n    `dayjob bin ls` shows what can be undone."
        )
    fitting = [one for one in found if wanted and one.about.id.startswith(wanted)]
    if len(fitting) == 1:
        return fitting[0]
    problem = (
        "is not in the bin: it was undone, or its ten minutes are over"
        if not fitting
        else "begins several ids"
    )
    raise NothingToUndo(f"{wanted[:80]!r} {problem}.\n    `dayjob bin ls` shows what can be undone.")
