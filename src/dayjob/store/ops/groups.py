"""Notes on groups of failures, and groups that operators ignore for a time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op, plain

#: Characters of a note and of the name of who wrote it.
MAX_TEXT = 500


class _Stored(msgspec.Struct, omit_defaults=True):
    """What is stored: a note with its text, or until when a group is ignored."""

    name: str
    kind: str
    by: str = ""
    at: float = 0.0
    text: str = ""
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupMark:
    """What operators noted about a group of failures."""

    #: The note, who wrote it and when; "" and None if there is none.
    note: str = ""
    noted_by: str = ""
    noted_at: float | None = None
    #: Until when the group is ignored, in Redis seconds, and who wanted that; None if it is not.
    ignored_until: float | None = None
    ignored_by: str = ""


def field_of(name: str, kind: str) -> str:
    """The field of a group, without what it is for. Errors may be long, so it is a digest."""
    return hashlib.sha256(f"{name}\0{kind}".encode("utf-8", "replace")).hexdigest()[:24]


def write_note(keys: Keys, name: str, kind: str, text: str, *, by: str, at: float) -> Op[Any]:
    """Store a note on a group; an empty text removes it."""
    key = f"{field_of(name, kind)}|note"
    if not text:
        return plain("HDEL", keys.groups, key)
    stored = _Stored(name, kind, by[:MAX_TEXT], at, text=codec.cut(text)[:MAX_TEXT])
    return plain("HSET", keys.groups, key, msgspec.json.encode(stored))


def ignore(keys: Keys, name: str, kind: str, until: float | None, *, by: str, at: float) -> Op[Any]:
    """Ignore a group until a moment; None ends that."""
    key = f"{field_of(name, kind)}|until"
    if until is None:
        return plain("HDEL", keys.groups, key)
    stored = _Stored(name, kind, by[:MAX_TEXT], at, until=until)
    return plain("HSET", keys.groups, key, msgspec.json.encode(stored))


def forget(keys: Keys, fields: list[str]) -> Op[Any]:
    """Remove fields; at least one."""
    return plain("HDEL", keys.groups, *fields)


@dataclass(frozen=True, slots=True)
class Marks:
    """All that operators noted about groups."""

    by_group: Mapping[str, GroupMark]
    #: Fields of ignores that are over, and how many fields there are.
    over: tuple[str, ...]
    count: int

    def of(self, name: str, kind: str) -> GroupMark:
        """What is noted about one group."""
        return self.by_group.get(field_of(name, kind), GroupMark())


def marks(keys: Keys, now: float) -> Op[Marks]:
    """What operators noted about all groups."""
    return Op("HGETALL", (keys.groups,), (), lambda reply: _read(reply, now))


def _read(reply: Any, now: float) -> Marks:
    found: dict[str, GroupMark] = {}
    over: list[str] = []
    for raw, value in zip(reply[::2], reply[1::2], strict=True):
        key = raw.decode("utf-8", "replace")
        group, _, what = key.partition("|")
        try:
            stored = msgspec.json.decode(value, type=_Stored)
        except codec.UNREADABLE:
            continue
        mark = found.get(group, GroupMark())
        if what == "note":
            found[group] = GroupMark(stored.text, stored.by, stored.at, mark.ignored_until, mark.ignored_by)
        elif stored.until > now:
            found[group] = GroupMark(mark.note, mark.noted_by, mark.noted_at, stored.until, stored.by)
        else:
            over.append(key)
    return Marks(found, tuple(over), len(reply) // 2)
