"""The options of job types, pools and enqueue calls, with their valid ranges. Validated once and then frozen.

JobOptions belong to a job type, PoolOptions to a pool, EnqueueOptions to one enqueue call.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from functools import cache
from typing import Annotated, Any, Literal, TypedDict, get_type_hints

from dayjob.errors import BadOption
from dayjob.limits import MAX_COST, Concurrency, Limit, Rate, Window, named_limits, sort_limits

#: Control characters, and those that change the direction of text: they can alter a terminal or disguise a name.
_CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"

#: The excluded characters keep a key such as `jobs:<name>:paused` from being another job's queue.
JOB_NAME = re.compile(rf"[^\s:/|{{}}{_CONTROLS}]{{1,200}}")

#: Spaces and line ends are excluded because they are usually typing mistakes and would make another namespace.
NAMESPACE = re.compile(rf"[^\s{_CONTROLS}]*")

#: A lone surrogate, such as `os.fsdecode` returns for bytes that are not UTF-8. Redis keys and JSON cannot hold it.
_SURROGATE = re.compile(r"[\ud800-\udfff]")

#: The name of a header of a job.
HEADER_NAME = re.compile(r"[a-z0-9_.-]{1,64}")
#: The names and values of all headers of a job together.
MAX_HEADER_BYTES = 4096

UniqueUntil = Literal["start", "done"]
Missed = Literal["skip", "one", "all"]
Backoff = Callable[[int], float]
Seconds = float | timedelta
#: A backoff for each kind of exception. The most specific class counts; others get the default backoff.
BackoffByError = Mapping[type[BaseException], Backoff | Seconds]
Commit = Callable[[Callable[[], Any]], Any]

#: How many characters a pool's tag may have.
MAX_TAG = 200
#: The valid values of `durability`.
DURABILITY = re.compile(r"memory|disk|replicas:([1-9][0-9]?)")

#: A function that the worker calls after an attempt: `on_done`, `on_fail`, `on_dead` or `on_discard`.
Hook = Callable[..., Any]

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


def _whole(low: int, high: int, *, none: bool = False) -> Check:
    def check(value: Any, option: str) -> Any:
        if value is None and none:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadOption(f"{option}={value!r}: give a whole number from {low} to {high}")
        return value

    return check


def _duration(*, none: bool = False) -> Check:
    def check(value: Any, option: str) -> Any:
        if value is None and none:
            return None
        found = seconds(value, option)
        if found <= 0:
            raise BadOption(f"{option}={value!r}: must be more than 0 seconds")
        return found

    return check


def _exceptions(none: Any) -> Check:
    def check(value: Any, option: str) -> Any:
        if value is None:
            return none
        kinds = value if isinstance(value, tuple | list) else (value,)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise BadOption(f"{option}={value!r}: give an exception class or a tuple of them")
        return tuple(kinds)

    return check


def _backoff(value: Any, option: str) -> Any:
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
    return _backoff(value, f"{option}[{kind.__name__}]")


def _boolean(value: Any, option: str) -> Any:
    if not isinstance(value, bool):
        raise BadOption(f"{option}={value!r}: write True or False")
    return value


def _start_or_done(value: Any, option: str) -> Any:
    if value not in ("start", "done"):
        raise BadOption(f"{option}={value!r}: write 'start' or 'done'")
    return value


def _argument_names(value: Any, option: str) -> Any:
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


def _log_bytes(value: Any, option: str) -> Any:
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


def _hook(value: Any, option: str) -> Any:
    if value is not None and not callable(value):
        raise BadOption(f"{option}={value!r}: give a function")
    return value


def _durability(value: Any, option: str) -> Any:
    durability_of(value, option)
    return value


def _tag(value: Any, option: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TAG or not value.isprintable():
        raise BadOption(
            f"{option}={value!r}: give a text of at most {MAX_TAG} printable characters, such as 'v42'"
        )
    return value


#: What a payload has of who enqueued the job: nothing, the job that did, or also the machine and process.
Provenance = Literal["off", "parent", "full"]


def provenance_of(value: Any, option: str) -> Any:
    """Check a value of `provenance=`. Raises BadOption, which names `option`."""
    if value not in ("off", "parent", "full"):
        raise BadOption(f"{option}={value!r}: write 'off', 'parent' or 'full'")
    return value


class JobSettings(TypedDict, total=False):
    """The types of the options of `@pool.job(...)` and `pool.register(...)`, for type checkers. See JobOptions."""

    priority: int
    max_fails: int
    max_concurrency: int | None
    limits: Sequence[Rate | Window | Concurrency | Limit]
    cost: int
    timeout: Seconds | None
    backoff: Backoff | Seconds | BackoffByError | None
    retry_on: tuple[type[BaseException], ...] | type[BaseException] | None
    discard_on: tuple[type[BaseException], ...] | type[BaseException]
    skip_dead: bool
    keep: Seconds | None
    unique_until: UniqueUntil
    redact: Sequence[str]
    history_count: int | None
    history_age: Seconds | None
    keep_logs: str | int | None
    on_done: Hook | None
    on_fail: Hook | None
    on_dead: Hook | None
    on_discard: Hook | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How the jobs of one name are run, retried, limited and kept. The annotation of each option has its check."""

    #: The weight of this queue beside the others, 1 to 100000.
    priority: Annotated[int, _whole(1, 100_000)] = 1
    #: The job is dead after this many failed attempts; 1 means no retry.
    max_fails: Annotated[int, _whole(1, 1_000_000)] = 4
    #: How many of these jobs may run at once over all pools; None for no limit.
    max_concurrency: Annotated[int | None, _whole(1, 1_000_000, none=True)] = None
    #: How often these jobs may start, and how many may run at once; see the guide on limits.
    limits: Annotated[tuple[Limit, ...], sort_limits] = ()
    #: How many units of its rates a job of this type takes.
    cost: Annotated[int, _whole(1, MAX_COST)] = 1
    #: Seconds an attempt may take; None for no limit.
    timeout: Annotated[float | None, _duration(none=True)] = None
    #: Seconds to wait after the nth failure: a function of n, a constant, a dict of exception classes to either, or
    #: None for n**4 + 15 + jitter.
    backoff: Annotated[Backoff | float | BackoffByError | None, _backoff] = None
    #: Only these exceptions are retried; any other sends the job to dead at once. None retries all.
    retry_on: Annotated[tuple[type[BaseException], ...] | None, _exceptions(none=None)] = None
    #: These exceptions discard the job: it is not retried and not kept in dead.
    discard_on: Annotated[tuple[type[BaseException], ...], _exceptions(none=())] = ()
    #: Drop the job instead of keeping it in dead after its last failure.
    skip_dead: Annotated[bool, _boolean] = False
    #: Seconds to keep a completed job and its result; None keeps neither.
    keep: Annotated[float | None, _duration(none=True)] = None
    #: When a unique job releases its unique key: when its first attempt starts, or when the job ends.
    unique_until: Annotated[UniqueUntil, _start_or_done] = "start"
    #: Arguments whose values are hidden in consoles, logs and error messages.
    redact: Annotated[tuple[str, ...], _argument_names] = ()
    #: How many completed attempts of this name, and how many others, the history keeps, and for how many seconds; 0
    #: keeps none. None for what the pool's options have.
    history_count: Annotated[int | None, _whole(0, 10_000_000, none=True)] = None
    history_age: Annotated[float | None, _duration(none=True)] = None
    #: How many bytes of the lines that each attempt logs are kept, the last ones, such as "64KB"; None keeps none.
    keep_logs: Annotated[int | None, _log_bytes] = None
    #: Called with (job, ...) after an attempt that ended this way; see the guide on failure.
    on_done: Annotated[Hook | None, _hook] = None
    on_fail: Annotated[Hook | None, _hook] = None
    on_dead: Annotated[Hook | None, _hook] = None
    on_discard: Annotated[Hook | None, _hook] = None

    @classmethod
    def of(cls, settings: Mapping[str, Any], where: str, defaults: JobOptions | None = None) -> JobOptions:
        """`defaults` with the validated `settings`. Raises BadOption, which names `where`."""
        return replace(defaults or cls(), **_checked(cls, settings, where))

    def for_job(self, name: str, where: str) -> JobOptions:
        """These options for the job type `name`: its rate limits have names, and a Concurrency is `max_concurrency`.

        Raises BadOption, which names `where`.
        """
        if not self.limits:
            return self
        given: Sequence[Any] = self.limits
        most = next((one.n for one in given if isinstance(one, Concurrency)), self.max_concurrency)
        if self.max_concurrency not in (None, most):
            raise BadOption(f"{where}: give max_concurrency or Concurrency, not both: they mean the same")
        return replace(self, max_concurrency=most, limits=named_limits(name, given, self.cost, where))


class PoolSettings(TypedDict, total=False):
    """The types of the options of `WorkerPool(...)` beside the named ones, for type checkers. See PoolOptions."""

    concurrency: int
    threads: int | None
    lease: Seconds
    beat: Seconds
    max_payload: int
    max_result: int
    dead_count: int
    dead_age: Seconds
    done_count: int
    history_count: int
    history_age: Seconds
    grace: Seconds
    durability: str
    tag: str
    provenance: Provenance


#: The other parameters of WorkerPool, suggested when an option is misspelled.
_NAMED = ("namespace", "redis", "include", "on_commit", "defaults", "codecs", "context")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How one pool works. The annotation of each option has its check."""

    #: How many jobs may run at once, sync and async together.
    concurrency: Annotated[int, _whole(1, 100_000)] = 10
    #: How many threads may run sync jobs; None for as many as `concurrency`.
    threads: Annotated[int | None, _whole(1, 100_000, none=True)] = None
    #: Seconds after its last heartbeat until a pool counts as dead.
    lease: Annotated[float, _duration()] = 15.0
    #: Seconds between two heartbeats.
    beat: Annotated[float, _duration()] = 5.0
    #: Largest payload that may be enqueued, in bytes.
    max_payload: Annotated[int, _whole(1024, 64 << 20)] = 1 << 20
    #: Largest result that a job type with `keep` may return, in bytes of JSON.
    max_result: Annotated[int, _whole(1024, 64 << 20)] = 1 << 20
    #: How many dead jobs are kept, and for how many seconds.
    dead_count: Annotated[int, _whole(0, 100_000_000)] = 10_000
    dead_age: Annotated[float, _duration()] = 180 * 86400.0
    #: How many completed jobs are kept for job types with `keep`.
    done_count: Annotated[int, _whole(0, 100_000_000)] = 10_000
    #: How many completed attempts of each job name, and how many others, the history keeps, and for how many seconds; 0
    #: keeps none.
    history_count: Annotated[int, _whole(0, 10_000_000)] = 20_000
    history_age: Annotated[float, _duration()] = 86400.0
    #: Seconds that a timed-out attempt may take to end before the pool gives it up.
    grace: Annotated[float, _duration()] = 5.0
    #: What an enqueue waits for: "memory" (the server has it), "replicas:2" (two replicas have it) or "disk" (the
    #: server has synced it to disk).
    durability: Annotated[str, _durability] = "memory"
    #: The version of the program. Consoles show it with the pool, and a new one is a deploy on the timeline.
    tag: Annotated[str, _tag] = ""
    #: What new jobs record of who enqueued them: "parent" (the job inside which it was done), "full" (also the machine
    #: and process) or "off".
    provenance: Annotated[Provenance, provenance_of] = "parent"

    @classmethod
    def of(cls, settings: Mapping[str, Any], where: str) -> PoolOptions:
        """Validate `settings`. Raises BadOption, which names `where`."""
        found = cls(**_checked(cls, settings, where, beside=_NAMED))
        if found.lease < 2 * found.beat:
            raise BadOption(
                f"{where}: lease={found.lease:g} must be at least twice beat={found.beat:g}, or live pools are reaped"
            )
        return found


@cache
def _checks(kind: type[Any]) -> dict[str, Check]:
    """The check of each option, from the annotation of its field."""
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(kind, include_extras=True).items()}


def _checked(
    kind: type[Any],
    settings: Mapping[str, Any],
    where: str,
    beside: Sequence[str] = (),
) -> dict[str, Any]:
    """The checked values of `settings`. Raises BadOption."""
    checks = _checks(kind)  # type: ignore[arg-type]  # mypy does not know that classes are hashable
    for key in settings:
        if key not in checks:
            valid = (*beside, *checks)
            raise BadOption(f"{where}: no option {key!r}{suggest(key, valid)} (options: {', '.join(valid)})")
    # In the order of the struct, so that the first of several mistakes is always the same one.
    return {key: check(settings[key], f"{where}: {key}") for key, check in checks.items() if key in settings}


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
    #: Texts that travel with the job, such as a trace or a request id. Never changed once the job is built.
    headers: Mapping[str, str] | None = None
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
    headers: Mapping[str, str]


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
            value = durability_of(value, "using(): durability")
        elif key == "on_commit":
            known["commit_given"] = True
            if value is not None and not callable(value):
                raise BadOption(f"using(on_commit={value!r}): give a function, such as transaction.on_commit")
        elif key == "headers":
            value = {**(known["headers"] or {}), **check_headers(value, "using(headers=...)")}
            check_headers(value, "using(headers=...)")
        elif key == "source":
            known["inherit"] = False
            if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
                raise BadOption(f"using(source={value!r}): give a string, an int, or None")
            if isinstance(value, str):
                check_text(value, "using(source=...)")
        known[key] = value
    known["unique"] |= known["unique_key"] is not None or known["unique_for"] is not None
    return EnqueueOptions(**known)


def durability_of(value: str, option: str) -> Durability:
    """Parse a value of `durability=`. Raises BadOption, which names `option`."""
    match = DURABILITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise BadOption(f"{option}={value!r}: write 'memory', 'disk', or 'replicas:2' (1 to 99 of them)")
    return Durability(replicas=int(match[1] or 0), disk=value == "disk")


def check_headers(headers: Any, where: str) -> dict[str, str]:
    """A copy of `headers` if they can travel with a job. Raises BadOption, which names `where`."""
    if not isinstance(headers, Mapping):
        raise BadOption(f"{where}: give a dict of strings, such as {{'request-id': '7f3a'}}")
    for name, value in headers.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            raise BadOption(f"{where}: {name!r} is no name: use 1 to 64 of a-z, 0-9, '-', '_' and '.'")
        if not isinstance(value, str):
            raise BadOption(f"{where}: {name!r} is a {type(value).__name__}, not a string")
        check_text(value, f"{where}: {name!r}")
    size = sum(len(name) + len(value.encode()) for name, value in headers.items())
    if size > MAX_HEADER_BYTES:
        raise BadOption(f"{where}: {size:,} bytes are too many; the limit is {MAX_HEADER_BYTES:,}")
    return dict(headers)


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


def check_redis(redis: str | None, name: str = "redis") -> str | None:
    """Return `redis` if it is a string or None. Raises BadOption, without the value: a client may show its password."""
    if redis is not None and not isinstance(redis, str):
        raise BadOption(
            f"{name} is of type {type(redis).__name__}: give a URL like 'redis://localhost:6379/0', or 'embedded'"
        )
    return redis


def suggest(key: str, known: Sequence[str]) -> str:
    """A "Did you mean" question for an error about `key`, or "" when no known name is similar."""
    near = difflib.get_close_matches(key, known, n=1)
    return f". Did you mean {near[0]!r}?" if near else ""
