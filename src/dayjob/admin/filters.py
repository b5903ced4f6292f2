"""Filter: chooses jobs by conditions, written as `name=mail error~"timed out" args.user_id=7 not age<1h`. Pure.

A filter is a list of conditions, and all of them must hold. Texts are compared as they are, never as patterns. Errors and
arguments are compared as they may be shown, so that a filter cannot feel for what is redacted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from dayjob.admin.filter_checks import CHECKS, ORDER, JobFacts, compare_texts
from dayjob.errors import BadOption
from dayjob.handlers.redact import looks_secret
from dayjob.names import suggest
from dayjob.store import codec
from dayjob.text import escaped, read_span

ConditionKind = Literal["text", "number", "span", "moment", "argument"]

#: How many conditions a filter may have, so that one filter costs a bounded amount of work for each job.
MAX_CONDITIONS = 20

_TEXT = ("=", "!=", "~")
_SPAN = (">", ">=", "<", "<=")


@dataclass(frozen=True, slots=True)
class FilterKey:
    """What can be compared, and how."""

    kind: ConditionKind
    signs: tuple[str, ...]
    example: str
    #: The states whose jobs have it; all if empty.
    states: tuple[str, ...] = ()


_NUMBER = tuple(ORDER)
KEYS: dict[str, FilterKey] = {
    "name": FilterKey("text", _TEXT, "name=mail"),
    "error": FilterKey("text", _TEXT, "error~'timed out'"),
    "kind": FilterKey("text", ("=", "!="), "kind='...'"),
    "source": FilterKey("text", _TEXT, "source=42"),
    "id": FilterKey("text", _TEXT, "id=..."),
    "batch": FilterKey("text", ("=", "!="), "batch=..."),
    "workflow": FilterKey("text", ("=", "!="), "workflow=..."),
    "text": FilterKey("text", ("~",), "text~'a=b'"),
    "args": FilterKey("argument", (*_NUMBER, "~"), "args.user_id=7"),
    "fails": FilterKey("number", _NUMBER, "fails>=2"),
    "deaths": FilterKey("number", _NUMBER, "deaths>0"),
    "snoozes": FilterKey("number", _NUMBER, "snoozes>0"),
    "size": FilterKey("number", _NUMBER, "size>10000"),
    "age": FilterKey("span", _SPAN, "age>10m"),
    "due": FilterKey("span", _SPAN, "due<1h", ("scheduled", "retry")),
    "since": FilterKey("moment", ("=",), "since=02:00"),
    "until": FilterKey("moment", ("=",), "until=03:00"),
    "pool": FilterKey("text", _TEXT, "pool=worker-1"),
    "tag": FilterKey("text", _TEXT, "tag=media", ("running",)),
}
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?(Z|[+-]\d\d:?\d\d)?")
_CONDITION = re.compile(r"(args(?:\.[^=!~<>]+)+|[A-Za-z_][\w.]*)(!=|>=|<=|[=~<>])(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FilterCondition:
    """One condition."""

    #: One of KEYS; of an argument with its path: `args.user.id`.
    key: str
    sign: str
    #: The text as written; of a moment as a date with its zone.
    value: str
    #: The number, the seconds, or the JSON value that the text stands for. A moment below 0 is so many seconds ago.
    parsed: Any = None
    negated: bool = False

    @property
    def base(self) -> str:
        """The key without the path of an argument."""
        return self.key.partition(".")[0]

    @property
    def path(self) -> list[str]:
        """The path of an argument."""
        return self.key.split(".")[1:]

    def holds(self, facts: JobFacts) -> bool | None:
        """Whether a job fits; None if what is compared is hidden: then neither this nor its opposite can be answered."""
        found = CHECKS[KEYS[self.base].kind](self, facts)
        return None if found is None else found != self.negated

    def __str__(self) -> str:
        plain = self.key == "text" and self.value != "not" and not _CONDITION.fullmatch(self.value)
        value = shlex.quote(self.value)
        text = value if plain else f"{shlex.quote(self.key)}{self.sign}{value}"
        return ("not " if self.negated else "") + text


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions that a job must meet, all of them."""

    conditions: tuple[FilterCondition, ...] = ()

    @classmethod
    def of(cls, *, name: str | None = None, kind: str | None = None) -> Filter:
        """The filter for a job name, for a kind of error as groups of failures have it, or for both."""
        pairs = (("name", name), ("kind", kind))
        return cls(
            tuple(FilterCondition(key, "=", value, value) for key, value in pairs if value is not None)
        )

    def named(self, name: str) -> Filter:
        """The same, for one job name."""
        return Filter((FilterCondition("name", "=", name, name), *self.conditions))

    @property
    def empty(self) -> bool:
        """Whether everything matches."""
        return not self.conditions

    @property
    def name(self) -> str | None:
        """The only job name that can match; None if there may be several."""
        return self._only("name")

    @property
    def source(self) -> str | None:
        """The only source that can match; None if there may be several."""
        return self._only("source")

    def _only(self, key: str) -> str | None:
        asked = (one for one in self.conditions if (one.key, one.sign, one.negated) == (key, "=", False))
        return next((one.value for one in asked), None)

    @property
    def reads_shown(self) -> bool:
        """Whether what may be shown of a job decides: its error or its arguments."""
        return any(one.base in ("error", "kind", "text", "args") for one in self.conditions)

    @property
    def reads_pools(self) -> bool:
        """Whether the pool of a running job decides."""
        return any(one.key in ("pool", "tag") for one in self.conditions)

    @property
    def paths(self) -> list[list[str]]:
        """The paths of the arguments that decide."""
        return [one.path for one in self.conditions if one.base == "args"]

    def fits_name(self, name: str) -> bool:
        """Whether jobs of this name can match at all."""
        return all(compare_texts(one, (name,)) != one.negated for one in self.conditions if one.key == "name")

    def matches(self, facts: JobFacts) -> bool | None:
        """Whether a job fits; None if that cannot be answered, because its arguments are hidden."""
        found: bool | None = True
        for one in self.conditions:
            holds = one.holds(facts)
            if holds is False:
                return False
            found = None if holds is None else found
        return found

    def check(self, state: str) -> None:
        """Raises BadOption for a condition that jobs in this state cannot meet."""
        for one in self.conditions:
            states = KEYS[one.base].states
            if states and state not in states:
                raise BadOption(
                    f"{one.key} is a filter for jobs in {' and '.join(states)}, not for those in {state}"
                )

    def __str__(self) -> str:
        return " ".join(map(str, self.conditions))


# Parsing.


def read_filter(text: str) -> Filter:
    """Parse a filter. Raises BadOption with an example."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise BadOption(f"{text!r}: a quote is not closed") from None
    found: list[FilterCondition] = []
    negated = False
    for word in words:
        if word == "not" and not negated:
            negated = True
            continue
        found.append(_read_condition(word, negated=negated))
        negated = False
    if negated:
        raise BadOption("not: write a condition after it, such as not name=mail")
    if len(found) > MAX_CONDITIONS:
        raise BadOption(f"{len(found)} conditions: a filter has at most {MAX_CONDITIONS}")
    equal = [one.key for one in found if one.sign == "=" and not one.negated]
    twice = next((key for key in equal if equal.count(key) > 1), None)
    if twice is not None:
        raise BadOption(f"{twice}= is given twice: no job can match both")
    return Filter(tuple(found))


def filter_of(where: Filter | str | None) -> Filter:
    """A filter from a Filter, its text, or None."""
    if isinstance(where, Filter):
        return where
    return read_filter(where or "")


def _read_condition(word: str, *, negated: bool) -> FilterCondition:
    split = _CONDITION.fullmatch(word)
    if not word:
        raise BadOption("an empty word matches every job: leave it out")
    if split is None:
        return FilterCondition("text", "~", word, word, negated)
    key, sign, value = split.groups()
    known = KEYS.get(key.partition(".")[0])
    if known is None or (known.kind == "argument") != ("." in key):
        raise BadOption(_hint(word, key, known))
    if sign not in known.signs:
        raise BadOption(
            f"{key}{sign}: write {' or '.join(f'{key}{one}' for one in known.signs)}, as in {known.example}"
        )
    if not value:
        raise BadOption(f"{key}{sign} needs a value, as in {known.example}")
    if known.kind == "argument" and any(map(looks_secret, key.split("."))):
        raise BadOption(f"{key} is redacted: jobs cannot be filtered by it")
    if known.kind == "moment":
        parsed, value = _read_moment(value, key)
    else:
        parsed = _PARSERS[known.kind](value, f"{key}{sign}")
    return FilterCondition(key, sign, value, parsed, negated)


def _hint(word: str, key: str, known: FilterKey | None) -> str:
    if known is not None and known.kind == "argument":
        return f"Unknown filter: {escaped(word)[:80]}. Name an argument, as in {known.example}"
    near = suggest(key, tuple(KEYS)) or "."
    examples = ", ".join(one.example for one in KEYS.values())
    return (
        f"Unknown filter: {escaped(key)[:80]}{near}\n"
        f"    Write {examples}; a plain word; or not before any of them."
    )


def _read_number(text: str, option: str) -> float:
    if not re.fullmatch(r"\d{1,15}(\.\d{1,9})?", text):
        raise BadOption(f"{option} {text!r}: write a number")
    return float(text)


def _read_json(text: str, _option: str) -> Any:
    """A JSON number, text, true, false or null; anything else is a text as it is."""
    try:
        found = codec.json_value(text.encode())
    except codec.UNREADABLE:
        return text
    return text if isinstance(found, dict | list) else found


def _read_moment(text: str, option: str) -> tuple[float, str]:
    """The moment of `since` and `until`, such as "02:00", "2026-11-18T02:00Z" or, as how long ago, "90m". Raises BadOption.

    The answer is in seconds since the epoch, or below 0 for so many seconds ago; with a text that means the same tomorrow.
    Times without a zone are in the zone of this machine, and a time without a date is the last such time.
    """
    now = datetime.now().astimezone()
    clock = _CLOCK.fullmatch(text)
    try:
        if clock:
            zone = datetime.fromisoformat(f"2000-01-01T00:00{clock[4]}").tzinfo if clock[4] else None
            here = now.astimezone(zone) if zone else now
            found = here.replace(
                hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3] or 0), microsecond=0
            )
            found = found if found <= now else found - timedelta(days=1)
        elif re.match(r"\d{4}-", text):
            found = datetime.fromisoformat(text)
            found = found if found.tzinfo else found.astimezone()
        else:
            return min(-read_span(text, option), -0.001), text
        return max(0.0, found.timestamp()), found.isoformat(timespec="seconds")
    except (ValueError, OverflowError, BadOption):
        raise BadOption(
            f"{option}={escaped(text)[:80]}: write a time such as 02:00, 02:00Z or 2026-11-18T02:00, or how long ago: 90m"
        ) from None


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "text": lambda text, _: text, "number": _read_number, "span": read_span, "argument": _read_json,
}  # fmt: skip


def age_of(state: str, wire: codec.Wire | None, at: float | None, now: float) -> float | None:
    """Seconds since a job came into its state."""
    if state == "dead" and at is not None:
        return now - at
    if wire is None:
        return None
    if state == "retry" and wire.failed_at:
        return now - float(wire.failed_at)
    since = codec.enqueued_at(wire)
    return now - since if since else None
