"""Checks of option values. Each takes a value and the option's name, and returns the value to keep or raises BadOption."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dayjob.errors import BadOption
from dayjob.limits import KeyRule, names_in

Seconds = float | timedelta

#: How many characters a pool's tag may have.
MAX_TAG = 200
#: The valid values of `durability`.
DURABILITY = re.compile(r"memory|disk|replicas:([1-9][0-9]?)")

#: The longest duration. A time this far ahead, in milliseconds, is still within the range that a payload may hold.
MAX_SECONDS = 10**11


def seconds(value: Seconds, option: str) -> float:
    """`value` as float seconds. Raises BadOption, which names `option`."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or math.isnan(number)
        or abs(number) > MAX_SECONDS
    ):
        raise BadOption(
            f"{option}={value!r}: give seconds as a number, or a timedelta, of up to {MAX_SECONDS:,} seconds"
        )
    return float(number)


#: Checks the value of an option, which it names in its BadOption, and returns the value to keep.
Check = Callable[[Any, str], Any]


def whole(low: int, high: int, *, none: bool = False) -> Check:
    """A whole number from `low` to `high`, or None if `none` allows it."""

    def check(value: Any, option: str) -> Any:
        if value is None and none:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadOption(f"{option}={value!r}: give a whole number from {low} to {high}")
        return value

    return check


def duration(*, none: bool = False) -> Check:
    """More than 0 seconds, or None if `none` allows it."""

    def check(value: Any, option: str) -> Any:
        if value is None and none:
            return None
        found = seconds(value, option)
        if found <= 0:
            raise BadOption(f"{option}={value!r}: must be more than 0 seconds")
        return found

    return check


def exceptions(none: Any) -> Check:
    """An exception class or several, as a tuple; `none` for None."""

    def check(value: Any, option: str) -> Any:
        if value is None:
            return none
        kinds = value if isinstance(value, tuple | list) else (value,)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise BadOption(f"{option}={value!r}: give an exception class or a tuple of them")
        return tuple(kinds)

    return check


def backoff(value: Any, option: str) -> Any:
    """Seconds, a function, a dict of exception classes to either, or None."""
    if isinstance(value, Mapping):
        return {kind: _backoff_of(kind, one, option) for kind, one in value.items()}
    if value is None or callable(value):
        return value
    found = seconds(value, option)
    if found < 0:
        raise BadOption(f"{option}={value!r}: must not be negative")
    return found


def _backoff_of(kind: Any, value: Any, option: str) -> Any:
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise BadOption(
            f"{option}: {kind!r} is no exception class: write {{ConnectionError: 60, OSError: 5}}"
        )
    if value is None or isinstance(value, Mapping):
        raise BadOption(f"{option}: give {kind.__name__} seconds, or a function of the number of fails")
    return backoff(value, f"{option}[{kind.__name__}]")


def boolean(value: Any, option: str) -> Any:
    """True or False."""
    if not isinstance(value, bool):
        raise BadOption(f"{option}={value!r}: write True or False")
    return value


def start_or_done(value: Any, option: str) -> Any:
    """When a unique job releases its unique key."""
    if value not in ("start", "done"):
        raise BadOption(f"{option}={value!r}: write 'start' or 'done'")
    return value


def argument_names(value: Any, option: str) -> Any:
    """Names of arguments, as a tuple."""
    if (
        isinstance(value, str)
        or not isinstance(value, Iterable)
        or not all(isinstance(one, str) for one in value)
    ):
        raise BadOption(f"{option}={value!r}: give a list of argument names")
    return tuple(value)


_BYTES = re.compile(r"(\d{1,9}) ?(B|KB|MB)?", re.IGNORECASE)
#: The most bytes of log lines that an attempt keeps.
MAX_LOG_BYTES = 1 << 20


def log_bytes(value: Any, option: str) -> Any:
    """A size such as 65536 or '64KB', in bytes; or None."""
    if value is None:
        return None
    match = (
        _BYTES.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    )
    unit = (match[2] or "B").upper() if match else "B"
    found = int(match[1]) << {"B": 0, "KB": 10, "MB": 20}[unit] if match else 0
    if not 256 <= found <= MAX_LOG_BYTES:
        raise BadOption(f"{option}={value!r}: write a size from 256 bytes to 1 MB, such as '64KB'")
    return found


def fair_by(value: Any, option: str) -> Any:
    """The key of a job type, without its limit."""
    names = names_in(value, option)
    return None if names is None else KeyRule(names)


def function(value: Any, option: str) -> Any:
    """A function, or None."""
    if value is not None and not callable(value):
        raise BadOption(f"{option}={value!r}: give a function")
    return value


def durability(value: Any, option: str) -> Any:
    """A text that `durability_of` can parse."""
    durability_of(value, option)
    return value


def tag(value: Any, option: str) -> str:
    """The version of a program."""
    if not isinstance(value, str) or len(value) > MAX_TAG or not value.isprintable():
        raise BadOption(
            f"{option}={value!r}: give a text of at most {MAX_TAG} printable characters, such as 'v42'"
        )
    return value


def provenance(value: Any, option: str) -> Any:
    """How much a new job records of who enqueued it."""
    if value not in ("off", "parent", "full"):
        raise BadOption(f"{option}={value!r}: write 'off', 'parent' or 'full'")
    return value


@dataclass(frozen=True, slots=True)
class Durability:
    """Where a job must be before its enqueue counts as stored. With neither, the server's memory is enough."""

    replicas: int = 0
    disk: bool = False

    def __bool__(self) -> bool:
        return self.disk or self.replicas > 0

    def __str__(self) -> str:
        return "disk" if self.disk else f"replicas:{self.replicas}" if self.replicas else "memory"


def durability_of(value: str, option: str) -> Durability:
    """Parse a value of `durability=`. Raises BadOption, which names `option`."""
    match = DURABILITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise BadOption(f"{option}={value!r}: write 'memory', 'disk', or 'replicas:2' (1 to 99 of them)")
    return Durability(replicas=int(match[1] or 0), disk=value == "disk")


def unique_key(value: Any) -> None:
    """Check the `unique_key` of `using()`. Raises BadOption."""
    if isinstance(value, str):
        fits = bool(value) and value.isprintable()
    else:
        fits = isinstance(value, Mapping) and _is_json(dict(value))
    if not fits:
        raise BadOption(f"using(unique_key={value!r}): give a printable string, or a dict of JSON values")


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(key) and _is_json(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return value.isascii() or value.encode("utf-8", "ignore").decode() == value
    return value is None or isinstance(value, bool | int)
