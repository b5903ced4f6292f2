"""WorkerPool, the public class that holds job types, middleware, schedules and options.

Creating a pool does nothing else: it does not connect, start a thread or read the environment. `start()` imports and
builds the runtime.
"""

from __future__ import annotations

import importlib
import inspect
import logging  # noqa: F401 - see FORK_SAFE
import os
import pkgutil
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

import msgspec

from dayjob.errors import BadOption, NotReady, UnknownJob, UsageError
from dayjob.handlers.codecs import Codec, Codecs
from dayjob.handlers.registry import JobType, Registry, encode_unchecked
from dayjob.handlers.signature import Colour, NoContext, given_name
from dayjob.job import Job, running
from dayjob.limits import Limit, Rate, RateKind, Window
from dayjob.middleware import EnqueueHook, Lifespan, Middleware
from dayjob.options import (
    Commit,
    Hook,
    JobOptions,
    JobSettings,
    Missed,
    PoolOptions,
    PoolSettings,
    check_name,
    check_namespace,
    check_redis,
    check_text,
)
from dayjob.text import message_of

if TYPE_CHECKING:
    from dayjob.enqueue.enqueuer import AsyncEnqueuer, Enqueuer

#: Held during an import at first use, and during every fork. A child that is forked in the middle of an import by another
#: thread would wait forever for the lock of that module. `logging`, whose lock an import may need, is imported above: a
#: fork takes locks in the reverse order of their registration, and must take this one first.
FORK_SAFE = threading.RLock()
# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORK_SAFE.acquire, after_in_parent=FORK_SAFE.release, after_in_child=FORK_SAFE.release
    )

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Anything:
    """Matches only a parameter that accepts anything: annotated with Any or object, or without an annotation.

    Such a first parameter may be the context, the job or an argument. A type checker cannot know which, so calls that
    enqueue such a handler are checked at run time only.
    """


class Decorator(Protocol[C]):
    """The type of `@pool.job(...)`: takes a function and returns a job type.

    The order of the overloads matters: first those whose parameters accept anything, then those with context and job,
    with one of them, and with neither.
    """

    @overload
    def __call__(self, fn: Callable[Concatenate[Anything, P], R], /) -> JobType[..., ..., R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[C, Anything, P], R], /) -> JobType[..., ..., R]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[C, Job, P], R], /
    ) -> JobType[Concatenate[C, Job, P], P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Job, P], R], /) -> JobType[Concatenate[Job, P], P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[C, P], R], /) -> JobType[Concatenate[C, P], P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> JobType[P, P, R]: ...


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job that is enqueued on a schedule."""

    #: Identifies the schedule in Redis.
    name: str
    spec: str
    job: str
    args: bytes
    timezone: str | None
    missed: Missed


class Running(Protocol):
    """The methods of the runtime that the pool uses."""

    def start(self) -> None: ...

    def drain(self, timeout: float | None) -> bool: ...

    def stop(self, timeout: float) -> None: ...

    def run(self) -> None: ...

    @property
    def ended(self) -> threading.Event: ...

    @property
    def pid(self) -> int: ...

    def runs(self, attempt: object) -> bool: ...


class _MadeOnce(Generic[T]):
    """An attribute that is made at first use and then is a plain attribute, so that reading it costs no call.

    Unlike functools.cached_property it has no lock. Another thread could hold it when the process forks, and it would
    then stay locked in the child.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, pool: None, owner: type) -> Self: ...
    @overload
    def __get__(self, pool: object, owner: type) -> T: ...

    def __get__(self, pool: object | None, owner: type) -> T | Self:
        if pool is None:
            return self
        # setdefault makes two threads that get here at once use the same one.
        made: T = pool.__dict__.setdefault(self._make.__name__, self._make(pool))
        return made


class WorkerPool(Generic[C]):
    """The jobs of a program and, once started, the workers that run them in this process.

    `context` is any class that needs no arguments; each job gets a new instance. `redis` is a URL, or "embedded".
    The environment variables DAYJOB_REDIS_URL and DAYJOB_NAMESPACE override `redis` and `namespace`. `include` lists
    modules that define jobs, "shop.mail.*" for every module of a package. `defaults` are the options of job types that do
    not set them, such as {"max_fails": 10, "timeout": 60}. `codecs` convert arguments and results of your own classes.
    Raises BadOption.
    """

    @overload
    def __init__(
        self: WorkerPool[NoContext],
        *,
        namespace: str | None = ...,
        redis: str | None = ...,
        include: Sequence[str] = ...,
        on_commit: Commit | None = ...,
        defaults: JobSettings | None = ...,
        codecs: Sequence[Codec[Any]] = ...,
        **options: Unpack[PoolSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        context: type[C],
        *,
        namespace: str | None = ...,
        redis: str | None = ...,
        include: Sequence[str] = ...,
        on_commit: Commit | None = ...,
        defaults: JobSettings | None = ...,
        codecs: Sequence[Codec[Any]] = ...,
        **options: Unpack[PoolSettings],
    ) -> None: ...

    def __init__(
        self,
        context: type[Any] = NoContext,
        *,
        namespace: str | None = None,
        redis: str | None = None,
        include: Sequence[str] = (),
        on_commit: Commit | None = None,
        defaults: JobSettings | None = None,
        codecs: Sequence[Codec[Any]] = (),
        **options: Unpack[PoolSettings],
    ) -> None:
        _check_context(context)
        if isinstance(include, str) or not all(isinstance(one, str) for one in include):
            raise BadOption(f"WorkerPool: include={include!r}: give a list of module names")
        self.context: type[C] = context
        #: The `namespace` argument, or None. The property `namespace` is the one in effect.
        self.named_namespace = None if namespace is None else check_namespace(namespace)
        self.redis = check_redis(redis)
        self.include = tuple(include)
        self.on_commit = on_commit
        #: The options of job types that do not set them.
        self.defaults = JobOptions.of(defaults or {}, "WorkerPool: defaults")
        #: Convert the arguments and results of this pool's jobs to and from JSON.
        self.codecs = Codecs(codecs)
        self.options = PoolOptions.of(options, "WorkerPool")
        #: The names of the options that were passed, as opposed to defaults.
        self.named_options = frozenset(options)
        self.registry = Registry()
        #: Wrapped around every job, the first outermost.
        self.middlewares: list[Middleware] = []
        #: Wrapped around the lifetime of the pool in each process, the first outermost.
        self.lifespans: list[Lifespan] = []
        #: Called around every enqueue call.
        self.enqueue_hooks: list[EnqueueHook] = []
        #: Called when an attempt of any job ends: "done", "fail", "dead" or "discard" to functions.
        self.hooks: dict[str, list[Hook]] = {}
        self.periodics: dict[str, PeriodicJob] = {}
        #: The limits that several job types may share, by name.
        self.limits: dict[str, Limit] = {}
        self._included = False
        self._runtime: Running | None = None
        #: The runtime that was built from what is registered here; set as soon as it starts.
        self._built: Running | None = None

    def __repr__(self) -> str:
        return f"<WorkerPool {self.namespace!r}, {len(self.registry)} job types>"

    @property
    def namespace(self) -> str:
        """The namespace in effect: DAYJOB_NAMESPACE, else the argument, else that of ./pyproject.toml, else "dayjob"."""
        with FORK_SAFE:
            from dayjob.store import addresses  # noqa: PLC0415 - a pool reads nothing before it is used

        return addresses.resolve_namespace(None, pool=self.named_namespace)

    @namespace.setter
    def namespace(self, namespace: str) -> None:
        self.named_namespace = check_namespace(namespace)

    # The overloads of job() and register() are those of Decorator.
    @overload
    def job(self, fn: Callable[Concatenate[Anything, P], R], /) -> JobType[..., ..., R]: ...
    @overload
    def job(self, fn: Callable[Concatenate[C, Anything, P], R], /) -> JobType[..., ..., R]: ...
    @overload
    def job(self, fn: Callable[Concatenate[C, Job, P], R], /) -> JobType[Concatenate[C, Job, P], P, R]: ...
    @overload
    def job(self, fn: Callable[Concatenate[Job, P], R], /) -> JobType[Concatenate[Job, P], P, R]: ...
    @overload
    def job(self, fn: Callable[Concatenate[C, P], R], /) -> JobType[Concatenate[C, P], P, R]: ...
    @overload
    def job(self, fn: Callable[P, R], /) -> JobType[P, P, R]: ...
    @overload
    def job(self, name: str | None = None, /, **options: Unpack[JobSettings]) -> Decorator[C]: ...

    def job(self, name: Any = None, /, **options: Any) -> Any:
        """Register a function as a job type: `@pool.job`, `@pool.job("name")`, `@pool.job(priority=4)`.

        Raises BadSignature when the function cannot be called as a handler, BadOption, and NotReady once the pool has
        started.
        """
        if callable(name):
            return self._add(None, name, options)
        return lambda fn: self._add(name, fn, options)

    @overload
    def register(
        self, name: str, fn: Callable[Concatenate[Anything, P], R], /, **options: Unpack[JobSettings]
    ) -> JobType[..., ..., R]: ...
    @overload
    def register(
        self, name: str, fn: Callable[Concatenate[C, Anything, P], R], /, **options: Unpack[JobSettings]
    ) -> JobType[..., ..., R]: ...
    @overload
    def register(
        self, name: str, fn: Callable[Concatenate[C, Job, P], R], /, **options: Unpack[JobSettings]
    ) -> JobType[Concatenate[C, Job, P], P, R]: ...
    @overload
    def register(
        self, name: str, fn: Callable[Concatenate[Job, P], R], /, **options: Unpack[JobSettings]
    ) -> JobType[Concatenate[Job, P], P, R]: ...
    @overload
    def register(
        self, name: str, fn: Callable[Concatenate[C, P], R], /, **options: Unpack[JobSettings]
    ) -> JobType[Concatenate[C, P], P, R]: ...
    @overload
    def register(
        self, name: str, fn: Callable[P, R], /, **options: Unpack[JobSettings]
    ) -> JobType[P, P, R]: ...

    def register(self, name: str, fn: Callable[..., Any], /, **options: Any) -> Any:
        """Register any function as a job type. Raises BadSignature, BadOption, and NotReady once the pool has started."""
        return self._add(name, fn, options)

    @overload
    def middleware(self, fn: F, /) -> F: ...
    @overload
    def middleware(self, /, *, only: Literal["sync", "async"] | None = None) -> Callable[[F], F]: ...

    def middleware(self, fn: Any = None, /, *, only: Colour | None = None) -> Any:
        """Wrap every job: `@pool.middleware`, or `@pool.middleware(only="async")`.

        Raises BadSignature, and NotReady once the pool has started.
        """

        def keep(given: F) -> F:
            self._refuse_late(f"middleware {given_name(given) or given!r}")
            self.middlewares.append(Middleware(given, only, self.context))
            return given

        return keep if fn is None else keep(fn)

    def lifespan(self, fn: F, /) -> F:
        """Run code before the pool starts and after it stops, in each process.

        Raises BadSignature, and NotReady once the pool has started.
        """
        self._refuse_late(f"lifespan {given_name(fn) or fn!r}")
        self.lifespans.append(Lifespan(fn))
        return fn

    def on_enqueue(self, fn: F, /) -> F:
        """Wrap every enqueue call of this pool: a generator with one `yield`, where the jobs are sent. Raises BadSignature.

        It gets an Outgoing, whose headers it may set, and is called once for `enqueue_many`. It runs in the caller's thread
        or event loop and must not block.
        """
        self.enqueue_hooks.append(EnqueueHook(fn))
        return fn

    def on_done(self, fn: F, /) -> F:
        """Call `fn(job)` whenever a job of this pool completes. Raises BadOption, and NotReady once the pool has started."""
        return self._hook("done", fn)

    def on_fail(self, fn: F, /) -> F:
        """Call `fn(job, error)` whenever an attempt fails. Raises as `on_done` does."""
        return self._hook("fail", fn)

    def on_dead(self, fn: F, /) -> F:
        """Call `fn(job, error)` whenever a job moves to dead. Raises as `on_done` does."""
        return self._hook("dead", fn)

    def on_discard(self, fn: F, /) -> F:
        """Call `fn(job, why)` whenever a job is discarded, expires or is cancelled. Raises as `on_done` does."""
        return self._hook("discard", fn)

    def _hook(self, event: str, fn: F) -> F:
        if not callable(fn):
            raise BadOption(f"on_{event}: {fn!r} is no function")
        self._refuse_late(f"on_{event} {given_name(fn) or fn!r}")
        self.hooks.setdefault(event, []).append(fn)
        return fn

    def periodic(
        self,
        spec: str,
        job: JobType[..., ..., Any] | str,
        args: Mapping[str, Any] | None = None,
        *,
        timezone: str | None = None,
        missed: Missed = "skip",
        name: str | None = None,
    ) -> PeriodicJob:
        """Enqueue a job on a schedule: a cron expression with five fields, or six with the seconds first.

        `name` identifies the schedule in Redis; it defaults to the job and the spec. `missed` decides what happens to
        ticks that passed while no pool was running. Raises BadSchedule, BadArguments and BadOption, and NotReady once
        the pool has started.
        """
        self._refuse_late(f"periodic {spec!r}")
        from dayjob.cron import parse  # noqa: PLC0415 - a pool without schedules does not need it

        parse(spec, timezone)
        if missed not in get_args(Missed):
            raise BadOption(f"periodic {spec!r}: missed={missed!r}: write 'skip', 'one' or 'all'")
        job_name = self._own_name(spec, job)
        raw = self._periodic_args(job_name, args or {})
        full = check_text(name or "", f"periodic {spec!r}: name") or " ".join(
            filter(None, (job_name, spec, timezone))
        )
        record = PeriodicJob(full, spec, job_name, raw, timezone, missed)
        if self.periodics.setdefault(full, record) != record:
            raise BadOption(f"periodic {full!r} exists with other settings: give one of them a name=")
        return record

    def limit(self, name: str, kind: RateKind, /) -> Limit:
        """A limit that several job types share: `stripe = pool.limit("stripe", Rate(100, per=1))`, then `limits=[stripe]`.

        Raises BadOption, also if the pool has another limit of this name, and NotReady once the pool has started.
        """
        self._refuse_late(f"limit {name!r}")
        if not isinstance(kind, Rate | Window):
            raise BadOption(
                f"limit {name!r}: {kind!r} cannot be shared by job types: give Rate or Window"
                " (Concurrency belongs to one job type: write it into its limits=[...])"
            )
        limit = Limit(check_name(name), kind)
        if self.limits.setdefault(name, limit) != limit:
            raise BadOption(
                f"limit {name!r} exists with other values ({self.limits[name].kind}): use that one, or another name"
            )
        return limit

    @_MadeOnce
    def enqueuer(self) -> Enqueuer:
        """Enqueues jobs by name, with arguments checked against the job types of this pool."""
        with FORK_SAFE:
            from dayjob.enqueue.enqueuer import Enqueuer  # noqa: PLC0415 - loads the Redis client

        return Enqueuer(self.namespace, **self._sending())

    @_MadeOnce
    def async_enqueuer(self) -> AsyncEnqueuer:
        """Like `enqueuer`, for async code."""
        with FORK_SAFE:
            from dayjob.enqueue.enqueuer import AsyncEnqueuer  # noqa: PLC0415 - loads the Redis client

        return AsyncEnqueuer(self.namespace, **self._sending())

    def enqueuer_for(self, namespace: str, redis: str | None) -> Enqueuer:
        """An enqueuer like `enqueuer`, for the namespace and server that a command was given."""
        with FORK_SAFE:
            from dayjob.enqueue.enqueuer import Enqueuer  # noqa: PLC0415 - loads the Redis client

        return Enqueuer(namespace, **{**self._sending(), "redis": redis})

    def import_includes(self) -> None:
        """Import the modules of `include`. Raises UsageError, which names the module that cannot be imported."""
        if self._included:
            return
        for name in self.include:
            package = _import(name.removesuffix(".*"))
            if not name.endswith(".*"):
                continue
            if not hasattr(package, "__path__"):
                raise UsageError(
                    f"include={name!r}: {package.__name__} is a module, not a package: drop the '.*'"
                )
            for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
                if not found.name.endswith(".__main__"):
                    _import(found.name)
        self._included = True

    def find(self, name: str) -> JobType[..., ..., Any]:
        """The job type of that name. Imports `include` if the name is not registered yet. Raises UnknownJob and UsageError."""
        if name not in self.registry:
            self.import_includes()
        return self.registry.get(name)

    def check(self) -> list[UsageError]:
        """Import `include`, resolve all annotations and check all schedules. Returns the problems. Raises UsageError."""
        self.import_includes()
        problems: list[UsageError] = [*self.registry.resolve_all()]
        for middleware in self.middlewares:
            try:
                middleware.starter()
            except UsageError as error:
                problems.append(error)
        for periodic in self.periodics.values():
            try:
                job_type = self.registry.get(periodic.job)
                if job_type.resolved:
                    job_type.encode((), msgspec.json.decode(periodic.args))
            except UsageError as error:
                problems.append(type(error)(f"periodic {periodic.name!r}: {error}"))
        return problems

    def start(self) -> None:
        """Start the workers in this process, unless they are running. Raises NotReady, UsageError and StoreError."""
        with self._lock:
            if not self._running:
                runtime = self._build()
                runtime.start()
                self._runtime = runtime

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until the queues of this pool are empty and no job is running. Returns False after `timeout` seconds."""
        runtime = self._own()
        if runtime is None:
            raise NotReady("the pool is not started: call start() before drain()")
        self._refuse_own_job(runtime, "drain")
        return runtime.drain(timeout)

    def stop(self, timeout: float = 25) -> None:
        """Stop within `timeout` seconds; jobs that have not ended by then are requeued. Does nothing if not running."""
        own = self._own()
        if own is not None:
            self._refuse_own_job(own, "stop")
        with self._lock:
            runtime, self._runtime = self._own(), None
            if runtime is not None:
                runtime.stop(timeout)

    def run(self) -> None:
        """Start the pool, run until the process receives a stop signal, and stop the pool."""
        with self._lock:
            if self._running:
                raise NotReady("the pool is started already: run() starts and stops it by itself")
            runtime = self._runtime = self._build()
        try:
            runtime.run()
        finally:
            # Not under the lock: a thread in stop() holds it until this run has ended.
            if self._runtime is runtime:
                self._runtime = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415 - a program without async code does not need it

        # In a thread, because start() connects and must not block the event loop.
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio  # noqa: PLC0415 - see above

        await asyncio.to_thread(self.stop)

    @property
    def _running(self) -> bool:
        # A runtime may have ended by itself, because one of its loops failed.
        runtime = self._own()
        return runtime is not None and not runtime.ended.is_set()

    def _own(self) -> Running | None:
        """The runtime of this process. A forked child must not touch the runtime of its parent."""
        runtime = self._runtime
        return runtime if runtime is not None and runtime.pid == os.getpid() else None

    def _refuse_late(self, what: str) -> None:
        runtime = self._built
        if runtime is not None and runtime.pid == os.getpid() and not runtime.ended.is_set():
            raise NotReady(
                f"{what}: the pool is started, so this would have no effect.\n"
                "    Register it before start(), or in a module that include=[...] names; "
                "or call stop(), register it, and call start() again."
            )

    @staticmethod
    def _refuse_own_job(runtime: Running, verb: str) -> None:
        if runtime.runs(running.get()):
            raise NotReady(
                f"a job cannot {verb} its own pool: it would wait for itself. Send the process a signal"
            )

    @property
    def _lock(self) -> threading.Lock:
        # A new lock in each process, because another thread may have held the parent's lock at the fork.
        # setdefault makes two threads that get here at once use the same lock.
        made: threading.Lock = self.__dict__.setdefault(f"_made_lock_{os.getpid()}", threading.Lock())
        return made

    def prepare(self) -> None:
        """Import the pool's modules and check its jobs. Raises UsageError if the pool cannot start."""
        problems = self.check()
        if problems:
            raise problems[0]
        if not len(self.registry):
            raise NotReady(
                "this pool has no jobs: write @pool.job above a function, "
                "or name the modules that do in WorkerPool(include=[...])"
            )

    def _build(self) -> Running:
        self.prepare()
        with FORK_SAFE:
            from dayjob.safe_logging import restore_loggers  # noqa: PLC0415 - only workers need it
            from dayjob.worker.runtime import Runtime  # noqa: PLC0415 - producers never load the worker

        restore_loggers()
        self._log_conflicts()
        runtime: Running = Runtime(self)
        return runtime

    def _add(
        self, name: str | None, fn: Callable[..., Any], settings: Mapping[str, Any]
    ) -> JobType[..., ..., Any]:
        if isinstance(fn, JobType):
            fn = fn.fn
        if not callable(fn):
            raise BadOption(f"job {name or fn!r}: {fn!r} is no function")
        chosen = name if name is not None else given_name(fn)
        if chosen is None:
            raise BadOption(f"{fn!r} has no name of its own: write pool.register('a-name', ...)")
        self._refuse_late(f"job {chosen!r}")
        job_type: JobType[..., ..., Any] = JobType(
            fn,
            name=chosen,
            options=self._job_options(chosen, settings),
            pool=self,
            context=self.context,
            codecs=self.codecs,
        )
        self.registry.add(job_type)
        return job_type

    def _job_options(self, name: str, settings: Mapping[str, Any]) -> JobOptions:
        """The options of a job type. Raises BadOption, also for a limit of another pool."""
        where = f"job {name!r}"
        options = JobOptions.of(settings, where, self.defaults).for_job(name, where)
        for limit in settings.get("limits", ()):
            if isinstance(limit, Limit) and self.limits.get(limit.name) != limit:
                known = ", ".join(map(repr, self.limits)) or "none"
                raise BadOption(
                    f"job {name!r}: this pool has no limit {limit.name!r} with these values (it has {known}):"
                    " use what its own limit() returned"
                )
        return options

    def _own_name(self, spec: str, job: JobType[..., ..., Any] | str) -> str:
        if isinstance(job, str):
            return check_name(job)
        if not isinstance(job, JobType):
            raise BadOption(f"periodic {spec!r}: {job!r} is no job: write @pool.job above it, or give a name")
        if job.name not in self.registry or self.registry.get(job.name).fn is not job.fn:
            raise BadOption(f"periodic {spec!r}: {job.name!r} is a job of another pool    {job.location}")
        if job.enqueue_options != self.registry.get(job.name).enqueue_options:
            raise BadOption(
                f"periodic {spec!r}: options of using() have no effect here; give {job.name!r} itself"
            )
        return job.name

    def _periodic_args(self, job_name: str, args: Mapping[str, Any]) -> bytes:
        try:
            job_type = self.registry.get(job_name)
        except UnknownJob:
            return encode_unchecked(
                job_name, args, self.codecs
            )  # a module of `include` may define the job; check() looks again
        return (
            job_type.encode((), args) if job_type.resolved else encode_unchecked(job_name, args, self.codecs)
        )

    def _log_conflicts(self) -> None:
        """Warn if the pool and an environment variable or pyproject.toml name different servers or namespaces."""
        with FORK_SAFE:
            from dayjob.store import addresses  # noqa: PLC0415 - a pool reads nothing before it is used

        for line in (
            addresses.conflict("redis", self.redis),
            addresses.conflict("namespace", self.named_namespace),
        ):
            if line:
                addresses.logger.warning("%s", line)

    def _sending(self) -> dict[str, Any]:
        with FORK_SAFE:
            from dayjob.store import addresses  # noqa: PLC0415 - a pool reads nothing before it is used

        return {
            "redis": addresses.pool_redis(self.redis),
            "on_commit": self.on_commit,
            "max_payload": self.options.max_payload,
            "durability": self.options.durability,
            "provenance": self.options.provenance,
            "find": self.find,
            "hooks": self.enqueue_hooks,
        }


def _check_context(context: Any) -> None:
    if isinstance(context, str):
        raise BadOption(
            f"WorkerPool({context!r}): the first argument is the context, a class. "
            f"Did you mean WorkerPool(namespace={context!r})?"
        )
    if not isinstance(context, type):
        kind = type(context).__name__
        meant = f"; write WorkerPool({kind})" if type(context).__module__ != "builtins" else ""
        raise BadOption(
            f"WorkerPool: {context!r} is no class{meant}: give one that needs no arguments, such as a dataclass"
        )
    try:
        inspect.signature(context).bind()
    except TypeError as error:
        raise BadOption(f"WorkerPool: {context.__name__} must need no arguments: {error}") from None
    except ValueError:
        pass  # a class written in C may have no signature; creating the first context will show whether it works


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"include: cannot import {name!r}: {message_of(error)}") from error
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a module may raise anything
        what = f"{type(error).__name__}: {_first_line(error)}".removesuffix(": ")
        raise UsageError(f"include: cannot import {name!r}: {what}{_place(error)}") from error


def _first_line(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else message_of(error)
    return text.strip().partition("\n")[0]


def _place(error: BaseException) -> str:
    """The line of the user's code where an import failed, on a line of its own; "" if it is not known."""
    if isinstance(error, SyntaxError):
        return f"\n    {error.filename}:{error.lineno}: {(error.text or '').strip()}".removesuffix(": ")
    ours = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - file names of tracebacks are strings
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((ours, "<frozen")):
            return f"\n    {frame.filename}:{frame.lineno}: {frame.line or ''}".removesuffix(": ")
    return ""
