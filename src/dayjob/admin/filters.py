"""Filter: chooses jobs by conditions, written as `name=mail error~"timed out" age>1h`. Pure.

Texts are compared as they are, never as patterns.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from dayjob.errors import BadOption
from dayjob.options import suggest
from dayjob.store import codec
from dayjob.text import escaped, read_span

#: Key and sign to the field they set.
_WORDS = {
    "name=": "name", "name~": "name_part", "error~": "error", "kind=": "kind", "source=": "source", "id=": "id",
    "age>": "older", "age<": "newer",
}  # fmt: skip
_KEYS = tuple(dict.fromkeys(word[:-1] for word in _WORDS))
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]*\d[0-9a-fA-F-]{7,}\b|\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions for a job. A field that is None is not checked."""

    name: str | None = None
    name_part: str | None = None
    #: Part of the error's text.
    error: str | None = None
    #: The whole error with numbers and ids as #, as in groups of failures.
    kind: str | None = None
    source: str | None = None
    id: str | None = None
    #: Seconds since the job came into its state: more than, less than.
    older: float | None = None
    newer: float | None = None

    @property
    def empty(self) -> bool:
        """Whether there are no conditions, so that every job matches."""
        return self == Filter()

    @property
    def reads_error(self) -> bool:
        """Whether a condition is about the error of a job."""
        return self.error is not None or self.kind is not None

    def fits_name(self, name: str) -> bool:
        """Whether jobs of this name can match at all."""
        return (self.name is None or name == self.name) and (self.name_part is None or self.name_part in name)

    def matches(self, wire: codec.Wire | None, age: float | None, error: str | None = None) -> bool:
        """Whether a job matches; `error` is its redacted error. A job that cannot be read matches only an empty filter."""
        if wire is None:
            return self.empty
        shown = wire.err if error is None else error
        return (
            (self.name is None or wire.name == self.name)
            and (self.name_part is None or self.name_part in wire.name)
            and (self.error is None or self.error in shown)
            and (self.kind is None or kind_of(shown) == self.kind)
            and (self.source is None or (wire.source is not None and str(wire.source) == self.source))
            and (self.id is None or wire.id == self.id)
            and (self.older is None or (age is not None and age > self.older))
            and (self.newer is None or (age is not None and age < self.newer))
        )

    def __str__(self) -> str:
        shown = []
        for word, attribute in _WORDS.items():
            value = getattr(self, attribute)
            if value is not None:
                text = f"{value:g}s" if isinstance(value, float) else value
                shown.append(f"{word}{shlex.quote(text)}")
        return " ".join(shown)


def read_filter(text: str) -> Filter:
    """Parse a filter. Raises BadOption with an example."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise BadOption(f"{text!r}: a quote is not closed") from None
    found: dict[str, Any] = {}
    for word in words:
        split = re.match(r"(\w+)([=~<>])(.+)$", word, re.DOTALL)
        field = _WORDS.get(f"{split[1]}{split[2]}") if split else None
        if split is None or field is None:
            raise BadOption(_hint(word, split[1] if split else word))
        if field in found:
            raise BadOption(f"{split[1]}{split[2]} is given twice")
        value = split[3]
        found[field] = read_span(value, f"age{split[2]}") if field in ("older", "newer") else value
    return Filter(**found)


def filter_of(where: Filter | str | None) -> Filter:
    """A filter from a Filter, its text, or None."""
    if isinstance(where, Filter):
        return where
    return read_filter(where or "")


def _hint(word: str, key: str) -> str:
    known = key in _KEYS
    near = "" if known else suggest(key, _KEYS)
    return (
        f"Unknown filter: {escaped(word if known else key)[:80]}{near or '.'}\n"
        "    Write name=mail, name~mail, error~'timed out', kind='...', source=42, id=..., age>1h or age<2d"
    )


def kind_of(error: str) -> str:
    """The first line of an error, with numbers and ids as #, so that equal failures of different jobs are equal."""
    first = error.strip().partition("\n")[0][:300]
    return _NUMBERS.sub("#", first)[:200] or "(no error is noted)"


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
