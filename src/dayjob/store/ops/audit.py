"""The audit log: one entry for each action of an operator, newest first, with a bounded number of entries."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops import inspect
from dayjob.store.scripts import load

#: How many entries are kept, and how many characters of each field.
MAX_LINES = 1000
MAX_TEXT = 500


class _StoredEntry(msgspec.Struct):
    actor: str = ""
    action: str = ""
    subject: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action."""

    #: Redis time in seconds.
    at: float
    actor: str
    action: str
    #: What the action was applied to, as the operator wrote it.
    subject: str
    #: The outcome, in words.
    result: str


def log_action(keys: Keys, *, actor: str, action: str, subject: str, result: str) -> Op[int]:
    """Add an entry, with the current Redis time."""
    stored = _StoredEntry(*(codec.cut(text)[:MAX_TEXT] for text in (actor, action, subject, result)))
    return Op(load("log_action"), (keys.audit,), (MAX_LINES, msgspec.json.encode(stored)), int)


def read(keys: Keys, *, offset: int = 0, size: int = 50) -> Op[tuple[AuditEntry, ...]]:
    """Entries of the audit log, newest first."""
    size = max(1, min(size, inspect.MAX_ENTRIES))
    return Op(
        "LRANGE",
        (keys.audit,),
        (offset, offset + size - 1),
        lambda reply: tuple(entry_of(raw) for raw in reply),
    )


def lines(keys: Keys, most: int) -> Op[list[bytes]]:
    """The newest stored lines, `most` at most. `entry_of` reads one."""
    return Op("LRANGE", (keys.audit,), (0, min(most, MAX_LINES) - 1), list)


def entry_of(raw: bytes) -> AuditEntry:
    """The entry of a stored line; one that cannot be read has its bytes as the result."""
    moment, _, text = raw.partition(b" ")
    try:
        stored = msgspec.json.decode(text, type=_StoredEntry)
        return AuditEntry(int(moment) / 1000, stored.actor, stored.action, stored.subject, stored.result)
    except codec.UNREADABLE:
        return AuditEntry(0.0, "", "", "", raw[:MAX_TEXT].decode("utf-8", "replace"))
