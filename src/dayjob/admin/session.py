"""Desk: whose namespace it is, who acts, and what is hidden. Every step of the admin layer is given one.

An action is noted in the audit after it was tried; that this fails does not hide that it was done.
"""

from __future__ import annotations

from dataclasses import dataclass

from dayjob.admin.minute_cache import Shelf
from dayjob.admin.views import Line, Outcome
from dayjob.errors import StoreError
from dayjob.store.keys import Keys
from dayjob.store.ops import audit, inspect
from dayjob.store.steps import Steps, ask


@dataclass(frozen=True, slots=True)
class Desk:
    """What one operator works with."""

    keys: Keys
    actor: str
    #: Names of arguments that are hidden, beside those that look like secrets.
    hide: frozenset[str]
    #: Whether arguments of job types that no pool has announced are shown.
    show_unannounced: bool
    shelf: Shelf


def note(desk: Desk, action: str, subject: str, result: str) -> Steps[bool]:
    """Write a line into the audit; false when that could not be done."""
    line = audit.note(desk.keys, actor=desk.actor, action=action, subject=subject, result=result)
    try:
        yield from ask(line)
    except StoreError:
        return False
    return True


def outcome(
    desk: Desk, action: str, subject: str, *, done: bool, says: str, found: bool = True
) -> Steps[Outcome]:
    """The outcome of an action, which is noted."""
    noted = yield from note(desk, action, subject, says)
    if not noted:
        says += " It could not be written into the audit."
    return Outcome(done, says, action, subject, noted, found)


def read_audit(desk: Desk, *, offset: int = 0, size: int = 50, about: str = "") -> Steps[tuple[Line, ...]]:
    """Who did what, newest first; the last 1,000 actions are kept. `about`: those that name a job id, an actor, a queue."""
    offset = max(0, offset)
    if not about:
        return (yield from ask(audit.read(desk.keys, offset=offset, size=size)))
    lines: list[Line] = []
    for first in range(0, audit.MOST_LINES, inspect.MOST_ENTRIES):
        lines += yield from ask(audit.read(desk.keys, offset=first, size=inspect.MOST_ENTRIES))
    text = about.casefold()
    found = [
        line
        for line in lines
        if any(text in part.casefold() for part in (line.actor, line.action, line.subject, line.result))
    ]
    return tuple(found[offset : offset + max(1, min(size, inspect.MOST_ENTRIES))])
