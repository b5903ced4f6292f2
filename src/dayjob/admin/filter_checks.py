"""Checks: how each kind of condition of a filter compares a job. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dayjob.handlers.redact import HIDDEN
from dayjob.store import codec

if TYPE_CHECKING:
    from dayjob.admin.filters import FilterCondition

#: What each sign means.
ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]*\d[0-9a-fA-F-]{7,}\b|\d+(\.\d+)?")


class Hidden:
    """Stands for an argument that may not be compared."""


@dataclass(slots=True)
class JobFacts:
    """What conditions compare of one job. Errors and arguments are as they may be shown, and are read when they are asked for."""

    wire: codec.Wire
    #: When it is due, died or is kept until; None in a queue.
    at: float | None
    #: Seconds since it came where it is; None if that is not known.
    age: float | None
    now: float
    #: Bytes of its payload.
    size: int
    read_error: Callable[[], str]
    #: All arguments as they may be shown.
    read_args: Callable[[], Any]
    #: One argument by its path: its value, `MISSING`, or `Hidden`.
    read_argument: Callable[[Sequence[str]], Any]
    #: Names of the pools it is or was in: of the one that holds it, or of those that died with it.
    pools: tuple[str, ...] = ()
    #: The tag of the pool that holds it.
    tag: str = ""


#: Stands for an argument that a job does not have.
MISSING = object()


def _check_text(one: FilterCondition, facts: JobFacts) -> bool:
    wire = facts.wire
    match one.key:
        case "text":
            return _has_word(one.value.casefold(), facts)
        case "error":
            texts: tuple[str, ...] = (facts.read_error(),)
        case "kind":
            texts = (kind_of(facts.read_error()),)
        case "source":
            texts = () if wire.source is None else (str(wire.source),)
        case "batch":
            texts = _batches(wire)
        case "workflow":
            node = codec.node_of(wire)
            texts = () if node is None else (node[0],)
        case "pool":
            texts = facts.pools
        case "tag":
            texts = (facts.tag,)
        case _:
            texts = (getattr(wire, one.key),)
    return compare_texts(one, texts)


def _batches(wire: codec.Wire) -> tuple[str, ...]:
    """The batches of which a job is a member, the nearest first. Callbacks are no members."""
    found = codec.membership(wire)
    return () if found is None or found[1][0] < 0 or codec.node_of(wire) is not None else found[0]


def compare_texts(one: FilterCondition, texts: tuple[str, ...]) -> bool:
    """Whether one of some texts is the value of a condition, or has it."""
    if one.sign == "~":
        return any(one.value in text for text in texts)
    return (one.value in texts) == (one.sign == "=")


def _has_word(word: str, facts: JobFacts) -> bool:
    """Whether the name, the id from its beginning on, the source, the error or an argument has a word."""
    wire = facts.wire
    return (
        word in wire.name.casefold()
        or wire.id.casefold().startswith(word)
        or (wire.source is not None and word in str(wire.source).casefold())
        or (bool(wire.err) and word in facts.read_error().casefold())
        or (_may_have(word, bytes(wire.args)) and _in_values(word, facts.read_args()))
    )


def _may_have(word: str, raw: bytes) -> bool:
    """Whether JSON can have a text with this word: a quick look that spares most jobs the decoding."""
    return not word.isalnum() or not word.isascii() or b"\\u" in raw or word.encode() in raw.lower()


def _in_values(word: str, value: Any) -> bool:
    if isinstance(value, dict):
        return any(_in_values(word, item) for item in value.values())
    if isinstance(value, list):
        return any(_in_values(word, item) for item in value)
    if isinstance(value, str):
        return not value.startswith(HIDDEN[:-1]) and word in value.casefold()
    return value is not None and word == str(value).casefold()


def _check_number(one: FilterCondition, facts: JobFacts) -> bool:
    value = facts.size if one.key == "size" else getattr(facts.wire, one.key)
    return ORDER[one.sign](value, one.parsed)


def _check_span(one: FilterCondition, facts: JobFacts) -> bool:
    until_due = None if facts.at is None else facts.at - facts.now
    value = facts.age if one.key == "age" else until_due
    return value is not None and ORDER[one.sign](value, one.parsed)


def _check_moment(one: FilterCondition, facts: JobFacts) -> bool:
    """When a job came where it is."""
    if facts.age is None:
        return False
    moment = facts.now + one.parsed if one.parsed < 0 else one.parsed
    came = facts.now - facts.age
    return bool(came >= moment if one.key == "since" else came < moment)


def _check_argument(one: FilterCondition, facts: JobFacts) -> bool | None:
    """Numbers are compared with numbers and texts with texts; values of other types are never equal."""
    value = facts.read_argument(one.path)
    if value is Hidden:
        return None
    if one.sign == "~":
        return isinstance(value, str) and one.value in value
    if _type_of(value) != _type_of(one.parsed):
        return one.sign == "!="
    if one.sign in ("=", "!=") or (isinstance(value, int | float | str) and not isinstance(value, bool)):
        return bool(ORDER[one.sign](value, one.parsed))
    return False


def _type_of(value: Any) -> str:
    """Types that can be compared with each other; true is no number."""
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


#: By the kind of a key.
CHECKS: dict[str, Callable[[FilterCondition, JobFacts], bool | None]] = {
    "text": _check_text, "number": _check_number, "span": _check_span, "moment": _check_moment, "argument": _check_argument,
}  # fmt: skip


def kind_of(error: str) -> str:
    """The first line of an error, with numbers and ids as #, so that equal failures of different jobs are equal."""
    first = error.strip().partition("\n")[0][:300]
    return _NUMBERS.sub("#", first)[:200] or "(no error is noted)"
