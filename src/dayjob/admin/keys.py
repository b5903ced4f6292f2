"""The keys of a queue: what each has waiting, its share, and what can be done to one."""

from __future__ import annotations

import math

from dayjob.admin import sorting
from dayjob.admin.bin import ended, new_deletion
from dayjob.admin.session import DONE_OR_ALREADY, Session, outcome, write_audit
from dayjob.admin.views import Outcome, Tally
from dayjob.admin.views.limits import KeysView, KeyView
from dayjob.errors import BadOption
from dayjob.handlers.job_keys import stored_key
from dayjob.names import suggest
from dayjob.store.ops import inspect, key_changes, operate, partitions, rates
from dayjob.store.ops.partitions import KeyChange, KeyState
from dayjob.store.steps import Steps, ask
from dayjob.text import counted

#: How many keys are read to find the largest ones, and how many are shown.
MAX_READ = 5000
MAX_SHOWN = 100


def listing(
    session: Session, name: str, *, most: int = MAX_SHOWN, read: int = MAX_READ, sort: str = ""
) -> Steps[KeysView]:
    """The keys of a queue that have waiting jobs, those with most jobs first. `read` keys are looked at. Raises BadOption."""
    sorting.KEYS.read(sort)
    keys = session.keys
    now = yield from ask(inspect.now())
    table = yield from ask(rates.rate_table(keys))
    rule = table.rules.get(name)
    places = rule.key.places if rule is not None and rule.key is not None else 0
    states = yield from partitions.all_key_states(keys, name, most=read)
    turns = yield from ask(partitions.count_keys(keys, name))
    blocked = yield from ask(partitions.count_blocked(keys, name))
    waiting = sum(one.waiting for one in states)
    views = [_view(one, places, waiting, now) for one in states if one.waiting or one.running]
    views.sort(key=lambda one: (-one.waiting, one.key))
    by = rule.key.by if rule is not None and rule.key is not None else ()
    others = max((one.oldest for one in views[1:] if one.oldest is not None), default=None)
    return KeysView(
        name,
        by,
        turns + blocked,
        blocked,
        waiting,
        tuple(sorting.KEYS.sorted(views, sort)[:most]),
        now,
        others,
    )


def _view(one: KeyState, places: int, waiting: int, now: float) -> KeyView:
    until = one.blocked_until
    timed = until is not None and math.isfinite(until)
    limit = one.limit or places or None
    return KeyView(
        one.key, one.waiting, one.running if limit or one.running else None, one.waiting / waiting if waiting else 0.0, _age(one.oldest, now), one.weight,
        limit, one.limit is not None, one.paused, max(0.0, until - now) if timed and until is not None else None,
        until is not None and not timed and not one.paused,
    )  # fmt: skip


def _age(payload: bytes | None, now: float) -> float | None:
    at = None if payload is None else inspect.enqueued_at(payload)
    return None if at is None else max(0.0, now - at)


# Actions.


def set_weight(session: Session, name: str, key: str, weight: float) -> Steps[Outcome]:
    """Set the weight of a key: it gets `weight` turns for each turn of a key with weight 1. Raises BadOption."""
    yield from _must_have_keys(session, name)
    own = stored_key(key)
    change = KeyChange(clear=("weight",)) if weight == 1 else KeyChange(weight)
    yield from key_changes.change_key(session.keys, name, own, change)
    return (yield from _done(session, "set weight", name, key, f"Weight {weight:g}."))


def limit_key(session: Session, name: str, key: str, limit: int | None) -> Steps[Outcome]:
    """Limit how many jobs of a key run at once; None for what the code declares. Raises BadOption."""
    yield from _must_have_keys(session, name)
    own = stored_key(key)
    change = KeyChange(clear=("limit",)) if limit is None else KeyChange(limit=limit)
    yield from key_changes.change_key(session.keys, name, own, change)
    message = "The limit of the code again." if limit is None else f"At most {limit:,} at once."
    return (yield from _done(session, "limit key", name, key, message))


def pause_key(session: Session, name: str, key: str) -> Steps[Outcome]:
    """Fetch no more jobs of one key. Running jobs continue. Raises BadOption."""
    return (yield from _pause_or_resume(session, "pause", name, key))


def resume_key(session: Session, name: str, key: str) -> Steps[Outcome]:
    """Fetch jobs of a paused key again. Raises BadOption."""
    return (yield from _pause_or_resume(session, "resume", name, key))


def _pause_or_resume(session: Session, action: str, name: str, key: str) -> Steps[Outcome]:
    yield from _must_have_keys(session, name)
    changed = yield from key_changes.change_key(
        session.keys, name, stored_key(key), KeyChange(paused=action == "pause")
    )
    kind, message = DONE_OR_ALREADY[action][changed]
    return (yield from outcome(session, f"{action} key", _subject(name, key), kind, message))


def purge_key(session: Session, name: str, key: str, *, undo: bool = True) -> Steps[Tally]:
    """Delete the jobs of one key that wait now. The bin keeps them for ten minutes; not with undo=False. Raises BadOption."""
    yield from _must_have_keys(session, name)
    subject = _subject(name, key)
    deletion = new_deletion(session, "purge", subject, undo=undo)
    place = partitions.place(name, stored_key(key))
    deleted = yield from operate.purge(session.keys, place, deletion=deletion)
    message = f"{counted(deleted, 'job')} deleted."
    audited = yield from write_audit(session, "purge key", subject, message)
    return Tally(deleted, deleted, deleted, message, audited, (yield from ended(deletion, deleted)))


def _must_have_keys(session: Session, name: str) -> Steps[None]:
    """Raises BadOption if the jobs of this name have no keys."""
    named = yield from ask(partitions.keyed_names(session.keys))
    if name not in named:
        near = (
            suggest(name, sorted(named)) or ". `limits=[...]` with by=, or fair_by=, gives a job type keys."
        )
        raise BadOption(f"the queue {name!r} has no keys{near}")


def _subject(name: str, key: str) -> str:
    return f"queue {name} (key {stored_key(key)})"


def _done(session: Session, action: str, name: str, key: str, message: str) -> Steps[Outcome]:
    return (yield from outcome(session, action, _subject(name, key), "done", message))
