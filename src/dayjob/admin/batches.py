"""Batches: what became of their members, what they wait for, and what can be done to one."""

from __future__ import annotations

from dayjob.admin import sorting, verbs
from dayjob.admin.bulk import Report, apply
from dayjob.admin.newest import AT_ONCE, newest
from dayjob.admin.session import Session, outcome
from dayjob.admin.views import Outcome, Tally
from dayjob.admin.views.batches import BatchCallback, BatchDetail, BatchesView, BatchView
from dayjob.errors import BadOption
from dayjob.explain.batches import batch_waits
from dayjob.explain.words import batch_sentence
from dayjob.store.ops import batches, inspect
from dayjob.store.ops.batches import StoredBatch
from dayjob.store.steps import Steps, ask
from dayjob.text import escaped


def view(found: StoredBatch, now: float) -> BatchView:
    """A batch as consoles show it."""
    return BatchView(
        found.id, found.description, found.state, found.created_at, found.ended_at, found.cancelled_at, found.total,
        found.ended - found.dead, found.failed, found.dead, found.left, found.eta(now),
        tuple(
            BatchCallback(event, name, f"{found.id}-{event}", found.sent.get(event))
            for event, name in found.callbacks.items()
        ),
        found.above[0],
    )  # fmt: skip


def listing(session: Session, *, offset: int = 0, size: int = 50, sort: str = "") -> Steps[BatchesView]:
    """Batches, the newest first, or sorted by a column among the newest 1,000. Raises BadOption."""
    sorting.BATCHES.read(sort)
    total = yield from ask(batches.count(session.keys))
    now = yield from ask(inspect.now())

    def read(skip: int, size: int) -> Steps[list[BatchView]]:
        return [view(one, now) for one in (yield from batches.page(session.keys, skip=skip, size=size))]

    found = yield from newest(total, read, sorting.BATCHES, offset=offset, size=size, sort=sort)
    return BatchesView(now, total, found.rows, found.next, found.sorted_among)


def stored(session: Session, batch_id: str) -> Steps[StoredBatch]:
    """A batch. Raises BadOption if there is none with this id."""
    found = (yield from batches.read(session.keys, batch_id)) if batch_id.isalnum() else None
    if found is None:
        raise BadOption(
            f"no batch {escaped(batch_id)[:80]!r}: it never existed, or succeeded more than a week ago. "
            "`dayjob batches ls` lists all"
        )
    return found


def one(session: Session, batch_id: str) -> Steps[BatchDetail]:
    """One batch with what it waits for, and the batches nested in it. Raises BadOption."""
    found = yield from stored(session, batch_id)
    waits = yield from batch_waits(session.keys, found)
    now = yield from ask(inspect.now())
    _, ids = yield from ask(batches.nested(session.keys, batch_id))
    some = yield from batches.read_many(session.keys, [ids[number] for number in sorted(ids)][:AT_ONCE])
    return BatchDetail(
        now, view(found, now), batch_sentence(waits), waits.running, waits.retry, waits.waiting,
        tuple(view(nested, now) for nested in some if nested is not None),
    )  # fmt: skip


# Actions.


def cancel(session: Session, batch_id: str) -> Steps[Outcome]:
    """End a batch: members that wait are dropped when their turn comes, those that run are asked to stop. Raises BadOption."""
    found = yield from _allowed(session, batch_id, "cancel")
    if isinstance(found, Outcome):
        return found
    done = yield from ask(batches.change_batch(session.keys, found, "cancel"))
    text = "Cancelled: its members end within seconds, or when their turn comes."
    return (yield from _done(session, "cancel", batch_id, text if done else ""))


def close(session: Session, batch_id: str) -> Steps[Outcome]:
    """Close an open batch: only its members can add jobs, and it ends when all have ended. Raises BadOption."""
    found = yield from _allowed(session, batch_id, "close")
    if isinstance(found, Outcome):
        return found
    done = yield from ask(batches.change_batch(session.keys, found, "close"))
    return (yield from _done(session, "close", batch_id, "Closed: it ends with its members." if done else ""))


def retry(session: Session, batch_id: str, *, progress: Report | None = None) -> Steps[Tally]:
    """Retry every dead member, those of nested batches too. The batch opens again, and success can still come. Raises BadOption."""
    found = yield from stored(session, batch_id)
    _check(found, "retry")
    return (yield from apply(session, "retry", "dead", where=f"batch={batch_id}", progress=progress))


def _check(found: StoredBatch, verb: str) -> None:
    row = verbs.row("batch", verb)
    if found.state not in row.states:
        raise BadOption(
            f"{verb}: the batch {found.id} is {found.state}; that is possible while it is {' or '.join(row.states)}"
        )


def _allowed(session: Session, batch_id: str, verb: str) -> Steps[StoredBatch | Outcome]:
    """The batch, or the outcome if its state does not allow this."""
    found = yield from stored(session, batch_id)
    if found.state in verbs.row("batch", verb).states:
        return found
    kind = f"{verb} batch"
    return (yield from outcome(session, kind, f"batch {batch_id}", "not_allowed", f"It is {found.state}."))


def _done(session: Session, verb: str, batch_id: str, message: str) -> Steps[Outcome]:
    subject = f"batch {batch_id}"
    if not message:
        return (yield from outcome(session, f"{verb} batch", subject, "moved", "It changed meanwhile."))
    return (yield from outcome(session, f"{verb} batch", subject, "done", message))
