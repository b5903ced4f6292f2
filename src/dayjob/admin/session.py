"""Session: the namespace, who acts, and what is hidden. Every step of the admin layer receives one.

An action is written into the audit after it was tried. If that fails, the outcome still shows what was done.
"""

from __future__ import annotations

from dataclasses import dataclass

from dayjob.admin import sorting
from dayjob.admin.minute_cache import MinuteCache
from dayjob.admin.views import AuditEntry, Outcome, OutcomeKind
from dayjob.errors import StoreError
from dayjob.store.keys import Keys
from dayjob.store.ops import audit, inspect
from dayjob.store.steps import Steps, ask

#: For pause and resume, by whether anything changed: the kind of the outcome and its sentence.
DONE_OR_ALREADY: dict[str, dict[bool, tuple[OutcomeKind, str]]] = {
    "pause": {True: ("done", "Paused."), False: ("already", "It was paused already.")},
    "resume": {True: ("done", "Resumed."), False: ("already", "It was not paused.")},
}


@dataclass(frozen=True, slots=True)
class Session:
    """The context of one operator's reads and actions."""

    keys: Keys
    actor: str
    #: Names of arguments that are hidden, beside those that look like secrets.
    hide: frozenset[str]
    #: Whether arguments of job types that no pool has announced are shown.
    show_unannounced: bool
    minute_cache: MinuteCache


def write_audit(session: Session, action: str, subject: str, result: str) -> Steps[bool]:
    """Write a line into the audit; false when that could not be done."""
    line = audit.log_action(session.keys, actor=session.actor, action=action, subject=subject, result=result)
    try:
        yield from ask(line)
    except StoreError:
        return False
    return True


def outcome(
    session: Session, action: str, subject: str, kind: OutcomeKind, message: str, *, undo: str = ""
) -> Steps[Outcome]:
    """The outcome of an action, which is written into the audit."""
    if kind != "done":
        message += " Nothing was changed."
    audited = yield from write_audit(session, action, subject, message)
    if not audited:
        message += " It could not be written into the audit."
    done = kind == "done"
    return Outcome(done, message, action, subject, audited, kind != "not_found", kind, undo if done else "")


def read_audit(
    session: Session, *, offset: int = 0, size: int = 50, about: str = "", sort: str = ""
) -> Steps[tuple[AuditEntry, ...]]:
    """The actions of operators, newest first. The last 1,000 are kept. `about` filters by a job id, an actor or a queue.

    A `sort` by another column is over all of them: `who`. Raises BadOption.
    """
    offset = max(0, offset)
    if not about and sorting.AUDIT.read(sort) == sorting.AUDIT.read(""):
        return (yield from ask(audit.read(session.keys, offset=offset, size=size)))
    lines: list[AuditEntry] = []
    for first in range(0, audit.MAX_LINES, inspect.MAX_ENTRIES):
        lines += yield from ask(audit.read(session.keys, offset=first, size=inspect.MAX_ENTRIES))
    text = about.casefold()
    found = [
        line
        for line in lines
        if any(text in part.casefold() for part in (line.actor, line.action, line.subject, line.result))
    ]
    found = sorting.AUDIT.sorted(found, sort)
    return tuple(found[offset : offset + max(1, min(size, inspect.MAX_ENTRIES))])
