"""Alert rules: what a watcher posts about, read from a small TOML file. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args
from urllib.parse import urlsplit

from dayjob.admin.views import Level, NoteKind
from dayjob.errors import BadOption
from dayjob.names import suggest
from dayjob.text import read_span

#: Levels of the verdict that can be chosen.
LEVELS: tuple[Level, ...] = ("notice", "warning", "error")
#: The longest time that a rule may name.
MAX_SPAN_SECONDS = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class VerdictRule:
    """Post when the verdict changes: when a note comes, goes, or becomes worse."""

    enabled: bool = True
    #: The lowest level that counts.
    level: Level = "warning"
    #: Kinds of notes that do not count. Queues that are late have a rule of their own.
    ignore: tuple[str, ...] = ("late",)


@dataclass(frozen=True, slots=True)
class FailuresRule:
    """Post when jobs fail in a way that was not seen before."""

    enabled: bool = True
    #: Job names, or patterns such as `report.*`, whose failures do not count.
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MissedRule:
    """Post when a schedule has not enqueued its job so long after a tick."""

    enabled: bool = True
    after: float = 60.0
    #: Schedules, or patterns, that do not count.
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LateRule:
    """Post when the oldest job of a queue has waited longer than this."""

    enabled: bool = True
    after: float = 300.0
    #: Other times for some queues, by name or pattern; None never posts. The first that fits counts.
    queues: Mapping[str, float | None] = field(default_factory=dict)

    def limit(self, queue: str) -> float | None:
        """Seconds that a job of this queue may wait; None if that does not matter."""
        for pattern, seconds in self.queues.items():
            if fnmatch.fnmatchcase(queue, pattern):
                return seconds
        return self.after


@dataclass(frozen=True, slots=True)
class AlertRules:
    """Everything that a watcher goes by."""

    #: Seconds between two looks.
    every: float = 15.0
    #: Seconds that a change must last before it is posted.
    settle: float = 30.0
    #: Whether it is posted that something is over.
    resolved: bool = True
    #: The address of the console, for links; "" for none.
    console: str = ""
    verdict: VerdictRule = VerdictRule()
    failures: FailuresRule = FailuresRule()
    missed: MissedRule = MissedRule()
    late: LateRule = LateRule()


# Reading.

Reader = Callable[[Any, str], Any]


def read_rules(table: Mapping[str, Any], where: str) -> AlertRules:
    """The rules of a parsed file; `where` names it in errors. Raises BadOption for an unknown key or a value that does not fit."""
    top: dict[str, Reader] = {
        "every": _least(1.0), "settle": _seconds, "resolved": _flag, "console": _console,
        "verdict": _section(VerdictRule, {"enabled": _flag, "level": _level, "ignore": _kinds}),
        "failures": _section(FailuresRule, {"enabled": _flag, "ignore": _names}),
        "missed": _section(MissedRule, {"enabled": _flag, "after": _seconds, "ignore": _names}),
        "late": _section(LateRule, {"enabled": _flag, "after": _seconds, "queues": _queues}),
    }  # fmt: skip
    return AlertRules(**_fields(table, top, where, ""))


def _fields(
    table: Mapping[str, Any], readers: Mapping[str, Reader], where: str, section: str
) -> dict[str, Any]:
    found = {}
    for key, value in table.items():
        if key not in readers:
            place = f"[{section}]" if section else "the file"
            raise BadOption(
                f"{where}: {place} has no {key!r}{suggest(key, list(readers))}\n    There are: {', '.join(readers)}"
            )
        label = f"{section}.{key}" if section else key
        try:
            found[key] = readers[key](value, label)
        except BadOption as error:
            raise BadOption(f"{where}: {error}") from None
    return found


def _section(kind: type[Any], readers: Mapping[str, Reader]) -> Reader:
    def read(value: Any, label: str) -> Any:
        if not isinstance(value, dict):
            raise BadOption(f"{label} is a table: write [{label}] on a line of its own")
        try:
            return kind(**_fields(value, readers, "", label))
        except BadOption as error:
            raise BadOption(str(error).removeprefix(": ")) from None

    return read


def _flag(value: Any, label: str) -> bool:
    if not isinstance(value, bool):
        raise BadOption(f"{label} = {value!r}: write true or false")
    return value


def _seconds(value: Any, label: str) -> float:
    """A span such as "5m", or a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadOption(f'{label} = {value!r}: write a span of time such as "90s", "5m" or "1h"')
    seconds = read_span(value if isinstance(value, str) else f"{value:.3f}", label)
    if seconds > MAX_SPAN_SECONDS:
        raise BadOption(f"{label} = {value!r}: 30 days at most")
    return seconds


def _least(least: float) -> Reader:
    def read(value: Any, label: str) -> float:
        seconds = _seconds(value, label)
        if seconds < least:
            raise BadOption(f"{label} = {value!r}: {least:g}s at least")
        return seconds

    return read


def _console(value: Any, label: str) -> str:
    parts = urlsplit(value) if isinstance(value, str) else None
    if (
        parts is None
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.username
    ):
        raise BadOption(f'{label}: write the address of the console, such as "https://jobs.example.com"')
    return str(value).rstrip("/")


def _level(value: Any, label: str) -> Any:
    if value not in LEVELS:
        near = suggest(value, LEVELS) if isinstance(value, str) else ""
        raise BadOption(f"{label} = {value!r}: there are {', '.join(LEVELS)}{near}")
    return value


def _names(value: Any, label: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise BadOption(f'{label}: write a list of names, such as ["report.*"]')
    return tuple(value)


def _kinds(value: Any, label: str) -> tuple[str, ...]:
    known = get_args(NoteKind)
    for one in _names(value, label):
        if one not in known:
            raise BadOption(
                f"{label}: no note is of the kind {one!r}{suggest(one, known)}\n    There are: {', '.join(known)}"
            )
    return tuple(value)


def _queues(value: Any, label: str) -> dict[str, float | None]:
    if not isinstance(value, dict):
        raise BadOption(f'{label} is a table: write [{label}] and lines such as media = "1h"')
    return {name: None if one == "off" else _seconds(one, f"{label}.{name}") for name, one in value.items()}
