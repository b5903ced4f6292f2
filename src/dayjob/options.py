"""The options of job types, pools and enqueue calls, with their valid ranges. Validated once and then frozen.

JobOptions belong to a job type, PoolOptions to a pool, EnqueueOptions to one enqueue call.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal, TypedDict, TypeVar, get_args

from dayjob.errors import BadOption

#: Control characters, and those that change the direction of text: they can alter a terminal or disguise a name.
_CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"

#: The excluded characters keep a key such as `jobs:<name>:paused` from being another job's queue.
JOB_NAME = re.compile(rf"[^\s:/|{{}}{_CONTROLS}]{{1,200}}")

#: Spaces and line ends are excluded because they are usually typing mistakes and would make another namespace.
NAMESPACE = re.compile(rf"[^\s{_CONTROLS}]*")

#: A lone surrogate, such as `os.fsdecode` returns for bytes that are not UTF-8. Redis keys and JSON cannot hold it.
_SURROGATE = re.compile(r"[\ud800-\udfff]")

UniqueUntil = Literal["start", "done"]
Missed = Literal["skip", "one", "all"]
Backoff = Callable[[int], float]
Seconds = float | timedelta
Commit = Callable[[Callable[[], Any]], Any]

#: The valid values of `durability`.
DURABILITY = re.compile(r"memory|disk|replicas:([1-9][0-9]?)")

#: A function that the worker calls after an attempt: `on_done`, `on_fail`, `on_dead` or `on_discard`.
Hook = Callable[..., Any]

Options = TypeVar("Options")

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


class JobSettings(TypedDict, total=False):
    """The keyword arguments of `@pool.job(...)` and `pool.register(...)`; JobOptions explains each."""

    priority: int
    max_fails: int
    max_concurrency: int | None
    timeout: Seconds | None
    backoff: Backoff | Seconds | None
    retry_on: tuple[type[BaseException], ...] | type[BaseException] | None
    discard_on: tuple[type[BaseException], ...] | type[BaseException]
    skip_dead: bool
    keep: Seconds | None
    unique_until: UniqueUntil
    redact: Sequence[str]
    on_done: Hook | None
    on_fail: Hook | None
    on_dead: Hook | None
    on_discard: Hook | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How the jobs of one name are run, retried, limited and kept."""

    #: The weight of this queue beside the others, 1 to 100000.
    priority: int = 1
    #: The job is dead after this many failed attempts; 1 means no retry.
    max_fails: int = 4
    #: How many of these jobs may run at once over all pools; None for no limit.
    max_concurrency: int | None = None
    #: Seconds an attempt may take; None for no limit.
    timeout: float | None = None
    #: Seconds to wait after the nth failure: a function of n, a constant, or None for n**4 + 15 + jitter.
    backoff: Backoff | float | None = None
    #: Only these exceptions are retried; any other sends the job to dead at once. None retries all.
    retry_on: tuple[type[BaseException], ...] | None = None
    #: These exceptions discard the job: it is not retried and not kept in dead.
    discard_on: tuple[type[BaseException], ...] = ()
    #: Drop the job instead of keeping it in dead after its last failure.
    skip_dead: bool = False
    #: Seconds to keep a completed job and its result; None keeps neither.
    keep: float | None = None
    #: When a unique job releases its unique key: when its first attempt starts, or when the job ends.
    unique_until: UniqueUntil = "start"
    #: Arguments whose values are hidden in consoles, logs and error messages.
    redact: tuple[str, ...] = ()
    #: Called with (job, ...) after an attempt that ended this way; see the guide on failure.
    on_done: Hook | None = None
    on_fail: Hook | None = None
    on_dead: Hook | None = None
    on_discard: Hook | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any], where: str) -> JobOptions:
        """Validate `settings`. Raises BadOption, which names `where`."""
        return _checked(cls, settings, where, _check_job)


class PoolSettings(TypedDict, total=False):
    """The keyword arguments of `WorkerPool(...)` beside the named ones; PoolOptions explains each."""

    concurrency: int
    threads: int | None
    lease: Seconds
    beat: Seconds
    max_payload: int
    max_result: int
    dead_count: int
    dead_age: Seconds
    done_count: int
    grace: Seconds
    durability: str


#: The other parameters of WorkerPool, suggested when an option is misspelled.
_NAMED = ("namespace", "redis", "include", "on_commit", "context")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How one pool works."""

    #: How many jobs may run at once, sync and async together.
    concurrency: int = 10
    #: How many threads may run sync jobs; None for as many as `concurrency`.
    threads: int | None = None
    #: Seconds after its last heartbeat until a pool counts as dead.
    lease: float = 15.0
    #: Seconds between two heartbeats.
    beat: float = 5.0
    #: Largest payload that may be enqueued, in bytes.
    max_payload: int = 1 << 20
    #: Largest result that a job type with `keep` may return, in bytes of JSON.
    max_result: int = 1 << 20
    #: How many dead jobs are kept, and for how many seconds.
    dead_count: int = 10_000
    dead_age: float = 180 * 86400.0
    #: How many completed jobs are kept for job types with `keep`.
    done_count: int = 10_000
    #: Seconds that a timed-out attempt may take to end before the pool gives it up.
    grace: float = 5.0
    #: What an enqueue waits for: "memory" (the server has it), "replicas:2" (two replicas have it) or "disk" (the
    #: server has synced it to disk).
    durability: str = "memory"

    @classmethod
    def of(cls, settings: Mapping[str, Any], where: str) -> PoolOptions:
        """Validate `settings`. Raises BadOption, which names `where`."""
        return _checked(cls, settings, where, _check_pool, beside=_NAMED)


@dataclass(frozen=True, slots=True)
class Durability:
    """Where a job must be before its enqueue counts as stored. With neither, the server's memory is enough."""

    replicas: int = 0
    disk: bool = False

    def __bool__(self) -> bool:
        return self.disk or self.replicas > 0

    def __str__(self) -> str:
        return "disk" if self.disk else f"replicas:{self.replicas}" if self.replicas else "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """The options of one enqueue call: those of `using()`, and when the job is to run."""

    id: str | None = None
    source: str | int | None = None
    #: Whether the job inherits the source of the job that is running now.
    inherit: bool = True
    unique: bool = False
    unique_key: str | Mapping[str, Any] | None = None
    unique_for: float | None = None
    unique_until: UniqueUntil = "start"
    #: Seconds from enqueue until a job that has not started is discarded.
    expires: float | None = None
    #: None uses the enqueuer's durability.
    durability: Durability | None = None
    on_commit: Commit | None = None
    #: Whether `using(on_commit=...)` was given, even as None, so that the pool's own does not apply.
    commit_given: bool = False
    #: When to run: `delay` seconds from now, or at `at` seconds since the epoch. At once if both are None.
    delay: float | None = None
    at: float | None = None


class Using(TypedDict, total=False):
    """The keyword arguments of `using(...)`."""

    id: str
    source: str | int | None
    unique_key: str | Mapping[str, Any]
    unique_for: Seconds
    expires: Seconds
    durability: str
    on_commit: Commit | None


def read_using(settings: Mapping[str, Any], base: EnqueueOptions | None = None) -> EnqueueOptions:
    """`base` with the options that were passed to `using(...)`. Raises BadOption."""
    known = {f.name: getattr(base or EnqueueOptions(), f.name) for f in fields(EnqueueOptions)}
    allowed = tuple(Using.__annotations__)
    for key, given in settings.items():
        value = given
        if key not in allowed:
            raise BadOption(f"using() has no option {key!r}{suggest(key, allowed)} ({', '.join(allowed)})")
        if key in ("unique_for", "expires"):
            value = seconds(value, f"using({key}=...)")
            if value <= 0:
                raise BadOption(f"using({key}={given!r}): must be more than 0 seconds")
        elif key == "id" and not (isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()):
            raise BadOption(f"using(id={value!r}): give 1 to 200 printable characters")
        elif key == "unique_key":
            _check_unique_key(value)
        elif key == "durability":
            value = durability_of(value, "using()")
        elif key == "on_commit":
            known["commit_given"] = True
            if value is not None and not callable(value):
                raise BadOption(f"using(on_commit={value!r}): give a function, such as transaction.on_commit")
        elif key == "source":
            known["inherit"] = False
            if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
                raise BadOption(f"using(source={value!r}): give a string, an int, or None")
            if isinstance(value, str):
                check_text(value, "using(source=...)")
        known[key] = value
    known["unique"] |= known["unique_key"] is not None or known["unique_for"] is not None
    return EnqueueOptions(**known)


def durability_of(value: str, where: str) -> Durability:
    """Parse a value of `durability=`. Raises BadOption, which names `where`."""
    match = DURABILITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise BadOption(
            f"{where}: durability={value!r}: write 'memory', 'disk', or 'replicas:2' (1 to 99 of them)"
        )
    return Durability(replicas=int(match[1] or 0), disk=value == "disk")


def _check_unique_key(value: Any) -> None:
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


def check_text(text: str, where: str) -> str:
    """Return `text` if Redis and JSON can store it. Raises BadOption, which names `where`."""
    if not text.isascii() and _SURROGATE.search(text):
        raise BadOption(f"{where}: {text!r} has half a character (a lone surrogate), which cannot be stored")
    return text


def check_name(name: str) -> str:
    """Return `name` if it is a valid job name. Raises BadOption."""
    if not isinstance(name, str) or not JOB_NAME.fullmatch(name) or _SURROGATE.search(name):
        raise BadOption(
            f"job name {name!r}: use 1 to 200 characters without spaces, control characters, ':', '/', '|', '{{' or '}}' "
            "('mail.send' and 'send-mail' are fine)"
        )
    return name


def check_namespace(namespace: str) -> str:
    """Return `namespace` if it is valid. Raises BadOption."""
    if not isinstance(namespace, str):
        raise BadOption(f"namespace={namespace!r}: give a string")
    if len(namespace) > 200 or not NAMESPACE.fullmatch(namespace) or _SURROGATE.search(namespace):
        meant = re.sub(rf"[\s{_CONTROLS}\ud800-\udfff]+", "-", namespace.strip())[:60]
        raise BadOption(
            f"namespace {namespace[:60]!r}: use up to 200 characters without blanks or line ends, and without control characters"
            + (f", such as {meant!r}" if meant else "")
        )
    return namespace


def _checked(
    cls: type[Options],
    settings: Mapping[str, Any],
    where: str,
    check: Callable[[dict[str, Any], str], None],
    beside: Sequence[str] = (),
) -> Options:
    known = tuple(f.name for f in fields(cls))  # type: ignore[arg-type]  # both callers pass dataclasses
    for key in settings:
        if key not in known:
            valid = (*beside, *known)
            raise BadOption(f"{where}: no option {key!r}{suggest(key, valid)} (options: {', '.join(valid)})")
    values = dict(settings)
    check(values, where)
    return cls(**values)


def _check_job(values: dict[str, Any], where: str) -> None:
    _whole(values, "priority", 1, 100_000, where)
    _whole(values, "max_fails", 1, 1_000_000, where)
    _whole(values, "max_concurrency", 1, 1_000_000, where, none=True)
    _positive(values, "timeout", where, none=True)
    _positive(values, "keep", where, none=True)
    backoff = values.get("backoff")
    if backoff is not None and not callable(backoff):
        values["backoff"] = seconds(backoff, f"{where}: backoff")
        if values["backoff"] < 0:
            raise BadOption(f"{where}: backoff={backoff!r}: must not be negative")
    for key in ("retry_on", "discard_on"):
        value = values.get(key)
        if value is None:
            values.pop(key, None)
            continue
        kinds = value if isinstance(value, tuple | list) else (value,)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise BadOption(f"{where}: {key}={value!r}: give an exception class or a tuple of them")
        values[key] = tuple(kinds)
    if values.get("unique_until", "start") not in get_args(UniqueUntil):
        raise BadOption(f"{where}: unique_until={values['unique_until']!r}: write 'start' or 'done'")
    redact = values.get("redact", ())
    if isinstance(redact, str) or not all(isinstance(key, str) for key in redact):
        raise BadOption(f"{where}: redact={redact!r}: give a list of argument names")
    values["redact"] = tuple(redact)
    for key in ("on_done", "on_fail", "on_dead", "on_discard"):
        if values.get(key) is not None and not callable(values[key]):
            raise BadOption(f"{where}: {key}={values[key]!r}: give a function")
    _boolean(values, "skip_dead", where)


def _check_pool(values: dict[str, Any], where: str) -> None:
    _whole(values, "concurrency", 1, 100_000, where)
    _whole(values, "threads", 1, 100_000, where, none=True)
    _whole(values, "max_payload", 1024, 64 << 20, where)
    _whole(values, "max_result", 1024, 64 << 20, where)
    _whole(values, "dead_count", 0, 100_000_000, where)
    _whole(values, "done_count", 0, 100_000_000, where)
    for key in ("lease", "beat", "dead_age", "grace"):
        _positive(values, key, where)
    durability_of(values.get("durability", "memory"), where)
    lease, beat = values.get("lease", 15.0), values.get("beat", 5.0)
    if lease < 2 * beat:
        raise BadOption(
            f"{where}: lease={lease:g} must be at least twice beat={beat:g}, or live pools are reaped"
        )


def _whole(values: dict[str, Any], key: str, low: int, high: int, where: str, *, none: bool = False) -> None:
    if key not in values or (none and values[key] is None):
        return
    value = values[key]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadOption(f"{where}: {key}={value!r}: give a whole number from {low} to {high}")


def _positive(values: dict[str, Any], key: str, where: str, *, none: bool = False) -> None:
    if key not in values or (none and values[key] is None):
        return
    given = values[key]
    values[key] = seconds(given, f"{where}: {key}")
    if values[key] <= 0:
        raise BadOption(f"{where}: {key}={given!r}: must be more than 0 seconds")


def _boolean(values: dict[str, Any], key: str, where: str) -> None:
    if key in values and not isinstance(values[key], bool):
        raise BadOption(f"{where}: {key}={values[key]!r}: write True or False")


def suggest(key: str, known: Sequence[str]) -> str:
    """A "Did you mean" question for an error about `key`, or "" when no known name is similar."""
    near = difflib.get_close_matches(key, known, n=1)
    return f". Did you mean {near[0]!r}?" if near else ""
