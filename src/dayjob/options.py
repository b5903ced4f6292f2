"""The options of job types, pools and enqueue calls, with their valid ranges. Validated once and then frozen.

JobOptions belong to a job type, PoolOptions to a pool, EnqueueOptions to one enqueue call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Annotated, Any, Literal, Protocol, TypedDict, get_type_hints

from dayjob import option_checks as checks
from dayjob.errors import BadOption
from dayjob.limits import (
    MAX_COST,
    Concurrency,
    KeyRule,
    Limit,
    RateKind,
    key_rule,
    named_limits,
    sort_limits,
)
from dayjob.names import check_headers, check_text, suggest
from dayjob.option_checks import Check, Durability, Seconds, durability_of, seconds

UniqueUntil = Literal["start", "done"]
Missed = Literal["skip", "one", "all"]
Backoff = Callable[[int], float]
#: A backoff for each kind of exception. The most specific class counts; others get the default backoff.
BackoffByError = Mapping[type[BaseException], Backoff | Seconds]
Commit = Callable[[Callable[[], Any]], Any]

#: A function that the worker calls after an attempt: `on_done`, `on_fail`, `on_dead` or `on_discard`.
Hook = Callable[..., Any]


#: What a payload has of who enqueued the job: nothing, the job that did, or also the machine and process.
Provenance = Literal["off", "parent", "full"]


class JobSettings(TypedDict, total=False):
    """The types of the options of `@pool.job(...)` and `pool.register(...)`, for type checkers. See JobOptions."""

    priority: int
    max_fails: int
    max_concurrency: int | None
    limits: Sequence[RateKind | Concurrency | Limit]
    cost: int
    fair_by: str | tuple[str, ...] | None
    fair_by_time: bool
    timeout: Seconds | None
    backoff: Backoff | Seconds | BackoffByError | None
    retry_on: tuple[type[BaseException], ...] | type[BaseException] | None
    discard_on: tuple[type[BaseException], ...] | type[BaseException]
    skip_dead: bool
    atomic: bool
    keep: Seconds | None
    unique_until: UniqueUntil
    redact: Sequence[str]
    history_count: int | None
    history_age: Seconds | None
    keep_logs: str | int | None
    deep_lookup: bool
    on_done: Hook | None
    on_fail: Hook | None
    on_dead: Hook | None
    on_discard: Hook | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How the jobs of one name are run, retried, limited and kept. The annotation of each option has its check."""

    #: The weight of this queue beside the others, 1 to 100000.
    priority: Annotated[int, checks.whole(1, 100_000)] = 1
    #: The job is dead after this many failed attempts; 1 means no retry.
    max_fails: Annotated[int, checks.whole(1, 1_000_000)] = 4
    #: How many of these jobs may run at once over all pools; None for no limit.
    max_concurrency: Annotated[int | None, checks.whole(1, 1_000_000, none=True)] = None
    #: How often these jobs may start, and how many may run at once; see the guide on limits.
    limits: Annotated[tuple[Limit, ...], sort_limits] = ()
    #: How many units of its rates a job of this type takes.
    cost: Annotated[int, checks.whole(1, MAX_COST)] = 1
    #: The argument whose values take turns, several of them, or "source"; see the guide on limits.
    fair_by: Annotated[KeyRule | None, checks.fair_by] = None
    #: Whether the values of `fair_by` share the seconds worked, instead of the number of jobs.
    fair_by_time: Annotated[bool, checks.boolean] = False
    #: Seconds an attempt may take; None for no limit.
    timeout: Annotated[float | None, checks.duration(none=True)] = None
    #: Seconds to wait after the nth failure: a function of n, a constant, a dict of exception classes to either, or
    #: None for n**4 + 15 + jitter.
    backoff: Annotated[Backoff | float | BackoffByError | None, checks.backoff] = None
    #: Only these exceptions are retried; any other sends the job to dead at once. None retries all.
    retry_on: Annotated[tuple[type[BaseException], ...] | None, checks.exceptions(none=None)] = None
    #: These exceptions discard the job: it is not retried and not kept in dead.
    discard_on: Annotated[tuple[type[BaseException], ...], checks.exceptions(none=())] = ()
    #: Drop the job instead of keeping it in dead after its last failure.
    skip_dead: Annotated[bool, checks.boolean] = False
    #: Store the jobs that a job enqueues in the step that completes it, and drop them if it does not complete.
    atomic: Annotated[bool, checks.boolean] = False
    #: Seconds to keep a completed job and its result; None keeps neither.
    keep: Annotated[float | None, checks.duration(none=True)] = None
    #: When a unique job releases its unique key: when its first attempt starts, or when the job ends.
    unique_until: Annotated[UniqueUntil, checks.start_or_done] = "start"
    #: Arguments whose values are hidden in consoles, logs and error messages.
    redact: Annotated[tuple[str, ...], checks.argument_names] = ()
    #: How many completed attempts of this name, and how many others, the history keeps, and for how many seconds; 0
    #: keeps none. None for what the pool's options have.
    history_count: Annotated[int | None, checks.whole(0, 10_000_000, none=True)] = None
    history_age: Annotated[float | None, checks.duration(none=True)] = None
    #: How many bytes of the lines that each attempt logs are kept, the last ones, such as "64KB"; None keeps none.
    keep_logs: Annotated[int | None, checks.log_bytes] = None
    #: Whether a job is found by its id wherever it is; others are found among the first 10,000 of a queue or set.
    deep_lookup: Annotated[bool, checks.boolean] = False
    #: Called with (job, ...) after an attempt that ended this way; see the guide on failure.
    on_done: Annotated[Hook | None, checks.function] = None
    on_fail: Annotated[Hook | None, checks.function] = None
    on_dead: Annotated[Hook | None, checks.function] = None
    on_discard: Annotated[Hook | None, checks.function] = None

    @classmethod
    def of(cls, settings: Mapping[str, Any], where: str, defaults: JobOptions | None = None) -> JobOptions:
        """`defaults` with the validated `settings`. Raises BadOption, which names `where`."""
        return replace(defaults or cls(), **_checked(cls, settings, where))

    @staticmethod
    def chosen(given: JobSettings | JobOptions | None) -> Mapping[str, Any]:
        """Options as settings: of JobOptions, those that differ from the defaults."""
        if isinstance(given, JobOptions):
            usual = JobOptions()
            pairs = ((one.name, getattr(given, one.name)) for one in fields(given))
            return {name: value for name, value in pairs if value != getattr(usual, name)}
        return given or {}

    def for_job(self, name: str, where: str) -> JobOptions:
        """These options for the job type `name`: its rate limits have names, and a Concurrency is `max_concurrency`.

        `fair_by` is then the key of the job type, with the limit of a Concurrency by key. Raises BadOption, which names
        `where`.
        """
        given: Sequence[Any] = self.limits
        key = key_rule(given, self.fair_by, by_time=self.fair_by_time, where=where)
        if not self.limits:
            return self if key == self.fair_by else replace(self, fair_by=key)
        plain = (one.n for one in given if isinstance(one, Concurrency) and one.by is None)
        most = next(plain, self.max_concurrency)
        if self.max_concurrency not in (None, most):
            raise BadOption(f"{where}: give max_concurrency or Concurrency, not both: they mean the same")
        limits = named_limits(name, given, self.cost, where)
        return replace(self, max_concurrency=most, limits=limits, fair_by=key)


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
    atomic: bool


#: The other parameters of WorkerPool, suggested when an option is misspelled.
_NAMED = ("namespace", "redis", "include", "on_commit", "outbox", "defaults", "codecs", "context")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How one pool works. The annotation of each option has its check."""

    #: How many jobs may run at once, sync and async together.
    concurrency: Annotated[int, checks.whole(1, 100_000)] = 10
    #: How many threads may run sync jobs; None for as many as `concurrency`.
    threads: Annotated[int | None, checks.whole(1, 100_000, none=True)] = None
    #: Seconds after its last heartbeat until a pool counts as dead.
    lease: Annotated[float, checks.duration()] = 15.0
    #: Seconds between two heartbeats.
    beat: Annotated[float, checks.duration()] = 5.0
    #: Largest payload that may be enqueued, in bytes.
    max_payload: Annotated[int, checks.whole(1024, 64 << 20)] = 1 << 20
    #: Largest result that a job type with `keep` may return, in bytes of JSON.
    max_result: Annotated[int, checks.whole(1024, 64 << 20)] = 1 << 20
    #: How many dead jobs are kept, and for how many seconds.
    dead_count: Annotated[int, checks.whole(0, 100_000_000)] = 10_000
    dead_age: Annotated[float, checks.duration()] = 180 * 86400.0
    #: How many completed jobs are kept for job types with `keep`.
    done_count: Annotated[int, checks.whole(0, 100_000_000)] = 10_000
    #: How many completed attempts of each job name, and how many others, the history keeps, and for how many seconds; 0
    #: keeps none.
    history_count: Annotated[int, checks.whole(0, 10_000_000)] = 20_000
    history_age: Annotated[float, checks.duration()] = 86400.0
    #: Seconds that a timed-out attempt may take to end before the pool gives it up.
    grace: Annotated[float, checks.duration()] = 5.0
    #: What an enqueue waits for: "memory" (the server has it), "replicas:2" (two replicas have it) or "disk" (the
    #: server has synced it to disk).
    durability: Annotated[str, checks.durability] = "memory"
    #: The version of the program. Consoles show it with the pool, and a new one is a deploy on the timeline.
    tag: Annotated[str, checks.tag] = ""
    #: What new jobs record of who enqueued them: "parent" (the job inside which it was done), "full" (also the machine
    #: and process) or "off".
    provenance: Annotated[Provenance, checks.provenance] = "parent"
    #: Whether jobs are atomic whose job type does not set `atomic`.
    atomic: Annotated[bool, checks.boolean] = False

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
    known = _checks(kind)  # type: ignore[arg-type]  # mypy does not know that classes are hashable
    for key in settings:
        if key not in known:
            if kind is PoolOptions and key in _checks(JobOptions):
                raise BadOption(
                    f"{where}: {key!r} is an option of jobs: write defaults={{{key!r}: {settings[key]!r}}}"
                )
            valid = (*beside, *known)
            raise BadOption(f"{where}: no option {key!r}{suggest(key, valid)} (options: {', '.join(valid)})")
    # In the order of the struct, so that the first of several mistakes is always the same one.
    return {key: check(settings[key], f"{where}: {key}") for key, check in known.items() if key in settings}


class ReplyPlan(Protocol):
    """How a caller waits for the result of the job that it enqueues."""

    @property
    def seconds(self) -> int:
        """How long the result is kept."""
        ...

    def expect(self, job_ids: Sequence[str], *, noted: bool) -> Sequence[Any]:
        """Prepare for the results of these jobs. Returns requests to send ahead of the jobs, if that may be `noted` there."""
        ...


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
    #: Whether a job that is enqueued inside an atomic job is sent at once.
    now: bool = False
    #: The database session in whose transaction the pool's outbox keeps the job.
    session: Any = None
    #: How the caller waits for the result; None if it does not.
    reply: ReplyPlan | None = None


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
    now: bool
    session: Any


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
            checks.unique_key(value)
        elif key == "now":
            checks.boolean(value, "using(): now")
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
