"""Text for people: durations ("1h30m", "42 s"), counts ("2 jobs"), and untrusted text made safe for a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime

from dayjob.errors import BadOption

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")


def escaped(text: str) -> str:
    """Untrusted text for one line of a terminal: control characters and line ends become escape sequences."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped_json(text: str) -> str:
    """JSON that is safe to print: control characters become JSON escapes, so that the value stays the same."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def message_of(error: BaseException) -> str:
    """The message of an exception, whose str() may itself raise."""
    try:
        return str(error)
    except Exception:
        return "(its message cannot be shown)"


def read_span(text: str, option: str) -> float:
    """Parse a duration such as "90", "1.5s", "1h30m" or "2d" to seconds. Raises BadOption, which names `option`."""
    if re.fullmatch(r"\d{1,11}(\.\d{1,9})?", text):
        return float(text)
    pieces = _PIECE.findall(text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text or len(text) > 40:
        raise BadOption(f"{option} {text!r}: write a span of time such as 90s, 5m, 1h30m or 2d")
    return sum(float(number) * _UNITS[unit] for number, unit in pieces)


def read_moment(text: str, option: str, now: float) -> float:
    """Parse a point in time to seconds since the epoch: a span before `now` ("1h30m"), a time of today ("02:00"), or a date
    and time ("2026-11-18 02:00"), in the time zone of this machine unless it names another. Raises BadOption.
    """
    if _PIECE.match(text):
        return now - read_span(text, option)
    today = datetime.fromtimestamp(now).astimezone()
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
            hour, minute, second = (*map(int, text.split(":")), 0)[:3]
            return today.replace(hour=hour, minute=minute, second=second, microsecond=0).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadOption(
            f"{option} {text!r}: write a span such as 1h, a time such as 02:00, or a date and time such as 2026-11-18 02:00"
        ) from None


def span(seconds: float) -> str:
    """`seconds` as a rounded duration for people: "0.4 s", "42 s", "3 min", "2.5 h", "12 days"."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * 86400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:,.0f} days"


def source_text(source: str | int | None) -> str:
    """The source of a job as people and filters write it; "" without one."""
    return "" if source is None else str(source)


def took(seconds: float) -> str:
    """A duration of a job, which may be short: "0.4 ms", "72 ms", "3 min"."""
    if seconds >= 1:
        return span(seconds)
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.2g} ms"


def size(number: float) -> str:
    """A number of bytes: "213 B", "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.3g} {unit}" if number < 1000 else f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.3g} GiB" if number < 1000 else f"{number:.0f} GiB"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number of things: "1 job", "2,000 jobs"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(words: Sequence[str], most: int = 5) -> str:
    """Some words: "a, b, c", or the first of many: "a, b and 30 more"."""
    return ", ".join(words[:most]) + (f" and {len(words) - most:,} more" if len(words) > most else "")


def doing(number: int, noun: str, verb: str) -> str:
    """A number of things and a verb that agrees with it: "1 job waits", "2,000 jobs wait"."""
    return f"{counted(number, noun)} {verb}" + ("s" if number == 1 else "")


def number_ranges(numbers: Sequence[int]) -> str:
    """Numbers in order, three or more in a row as the first and the last: "0 2-9"."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return " ".join(
        f"{group[0]}-{group[-1]}" if len(group) > 2 else " ".join(map(str, group)) for group in groups
    )
