"""Descriptions of job types that pools announce in Redis, for consoles that do not import the program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dayjob.errors import Rejected
from dayjob.handlers.describe import Described
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op
from dayjob.store.ops.history import HistoryCaps
from dayjob.store.scripts import load
from dayjob.store.steps import Steps, ask

#: How many job types are kept, and how many one request announces, reads or drops.
MAX_TYPES = 5000
AT_ONCE = 200
#: Seconds after which a pool refreshes an announcement, and after which an unused job type is dropped.
DAY_SECONDS = 86_400
KEPT_SECONDS = 30 * DAY_SECONDS


def announce(keys: Keys, described: Sequence[Described], *, pool_id: str = "", tag: str = "") -> Op[int]:
    """Store descriptions of job types, 200 at most. Returns how many were written, -1 if the key has a wrong type.

    `pool_id` is that of a pool that starts: new and changed job types, and a new tag, are then logged as a deploy.
    """
    args: list[Arg] = [MAX_TYPES, DAY_SECONDS, pool_id, tag]
    for one in described:
        args += (one.name, msgspec.json.encode(one))
    return Op(load("announce"), (keys.job_types, keys.versions, keys.events("deploy")), args, int)


def forget(keys: Keys, names: Sequence[str], *, age: float = KEPT_SECONDS) -> Op[int]:
    """Drop those of these job types that no pool has announced for `age` seconds; 500 names at most."""
    return Op(load("forget"), (keys.job_types, keys.versions), (int(age), *names), int)


def announced_at(keys: Keys, names: Sequence[str]) -> Op[list[float | None]]:
    """When these job types were last announced, in the same order; None for missing ones. 200 names at most."""
    return Op(
        "HMGET", (keys.job_types,), [f"{name}|at" for name in names], lambda reply: [*map(_moment, reply)]
    )


def _moment(raw: bytes | None) -> float | None:
    return float(raw) if raw is not None and raw.isdigit() else None


def names(keys: Keys) -> Op[list[str]]:
    """The names of all job types that pools have announced."""
    return Op("HKEYS", (keys.job_types,), (), lambda reply: sorted(_names(reply)))


def _names(reply: Any) -> list[str]:
    found = (raw.decode("utf-8", "replace") for raw in reply)
    return [name for name in found if "|" not in name]


@dataclass(frozen=True, slots=True)
class AnnouncedType:
    """The description of a job type, and when a pool last announced it."""

    described: Described
    at: float | None


def some(keys: Keys, wanted: Sequence[str]) -> Op[list[AnnouncedType | None]]:
    """The descriptions of these job types, in the same order; at least one."""
    fields = [field for name in wanted for field in (name, f"{name}|at")]
    return Op("HMGET", (keys.job_types,), fields, _read_some)


def keeping(keys: Keys, wanted: Iterable[str]) -> Steps[set[str]]:
    """Those of these names, 500 at most, whose job type keeps results. Empty if the key has a wrong type."""
    names_ = sorted(set(wanted))
    try:
        found = (yield from ask(some(keys, names_))) if names_ else []
    except Rejected:
        return set()
    return {one.described.name for one in found if one is not None and one.described.keep is not None}


def searched_whole(keys: Keys, name: str | None) -> Steps[list[str]]:
    """The names with `deep_lookup`: this one, or all. Empty if the key has a wrong type."""
    try:
        found = (yield from every(keys)) if name is None else (yield from ask(some(keys, [name])))
    except Rejected:
        return []
    return [one.described.name for one in found if one is not None and one.described.deep_lookup]


def history_caps(keys: Keys, wanted: Iterable[str]) -> Steps[dict[str, HistoryCaps]]:
    """What the history keeps of these names, as their pools announced it. Empty if the key has a wrong type."""
    names_ = sorted(set(wanted))[:AT_ONCE]
    try:
        found = (yield from ask(some(keys, names_))) if names_ else []
    except Rejected:
        return {}
    return {
        one.described.name: HistoryCaps(one.described.history_count, one.described.history_age)
        for one in found
        if one is not None
        and one.described.history_count is not None
        and one.described.history_age is not None
    }


def every(keys: Keys) -> Steps[list[AnnouncedType]]:
    """All job types, sorted by name, in bounded reads."""
    wanted = yield from ask(names(keys))
    found: list[AnnouncedType] = []
    for first in range(0, len(wanted), AT_ONCE):
        part = yield from ask(some(keys, wanted[first : first + AT_ONCE]))
        found += [one for one in part if one is not None]
    return found


def _read_some(reply: Any) -> list[AnnouncedType | None]:
    return [_known(raw, at) for raw, at in zip(reply[::2], reply[1::2], strict=True)]


def _known(raw: bytes | None, at: bytes | None) -> AnnouncedType | None:
    try:
        described = None if raw is None else msgspec.json.decode(raw, type=Described)
    except codec.UNREADABLE:
        return None
    if described is None:
        return None
    return AnnouncedType(described, _moment(at))
