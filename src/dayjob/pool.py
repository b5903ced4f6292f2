"""WorkerPool, the public class that holds job types, middleware, schedules and options.

Creating a pool does nothing else: it does not connect, start a thread or read the environment. `start()` imports and
builds the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from dayjob.errors import BadOption, NotReady, UsageError
from dayjob.fork_safe import FORK_SAFE, MadeOnce
from dayjob.handlers.codecs import Codec, Codecs
from dayjob.handlers.decorator import Anything, Decorator
from dayjob.handlers.includes import import_modules
from dayjob.handlers.periodic import PeriodicJob
from dayjob.handlers.registry import JobType, Registry
from dayjob.handlers.signature import NoContext, check_context, given_name
from dayjob.job import Job
from dayjob.limits import By, Limit, RateKind
from dayjob.names import check_name, check_namespace, check_redis
from dayjob.options import Commit, JobOptions, JobSettings, Missed, PoolOptions, PoolSettings
from dayjob.pool_hooks import PoolHooks
from dayjob.pool_lifecycle import Running

if TYPE_CHECKING:
    from dayjob.enqueue.batches import Batch
    from dayjob.enqueue.enqueuer import AsyncEnqueuer, Enqueuer
    from dayjob.enqueue.workflows import Workflow
    from dayjob.transactions import TransactionOutbox

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")


class WorkerPool(PoolHooks, Generic[C]):
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
        outbox: TransactionOutbox | Literal["django"] | None = ...,
        defaults: JobSettings | JobOptions | None = ...,
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
        outbox: TransactionOutbox | Literal["django"] | None = ...,
        defaults: JobSettings | JobOptions | None = ...,
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
        outbox: TransactionOutbox | Literal["django"] | None = None,
        defaults: JobSettings | JobOptions | None = None,
        codecs: Sequence[Codec[Any]] = (),
        **options: Unpack[PoolSettings],
    ) -> None:
        super().__init__()
        check_context(context)
        if isinstance(include, str) or not all(isinstance(one, str) for one in include):
            raise BadOption(f"WorkerPool: include={include!r}: give a list of module names")
        self.context: type[C] = context
        #: The `namespace` argument, or None. The property `namespace` is the one in effect.
        self.named_namespace = None if namespace is None else check_namespace(namespace)
        self.redis = check_redis(redis)
        self.include = tuple(include)
        self.on_commit = on_commit
        if outbox is not None and outbox != "django" and not hasattr(outbox, "relay_step"):
            raise BadOption(f'WorkerPool: outbox={outbox!r}: give Outbox(engine), or "django"')
        self._given_outbox = outbox
        self.options = PoolOptions.of(options, "WorkerPool")
        #: The options of job types that do not set them.
        self.defaults = JobOptions.of(
            {"atomic": self.options.atomic, **JobOptions.chosen(defaults)}, "WorkerPool: defaults"
        )
        #: Convert the arguments and results of this pool's jobs to and from JSON.
        self.codecs = Codecs(codecs)
        #: The names of the options that were passed, as opposed to defaults.
        self.named_options = frozenset(options)
        self.registry = Registry()
        self.periodics: dict[str, PeriodicJob] = {}
        #: The limits that several job types may share, by name.
        self.limits: dict[str, Limit] = {}
        self._included = False

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
        record = PeriodicJob.of(
            self.registry, self.codecs, spec, job, args or {}, timezone=timezone, missed=missed, name=name
        )
        if self.periodics.setdefault(record.name, record) != record:
            raise BadOption(f"periodic {record.name!r} exists with other settings: give one of them a name=")
        return record

    def limit(self, name: str, kind: RateKind, /, *, by: By = None) -> Limit:
        """A limit that several job types share: `stripe = pool.limit("stripe", Rate(100, per=1))`, then `limits=[stripe]`.

        With `by="account"`, each value of that argument has a limit of its own.

        Raises BadOption, also if the pool has another limit of this name, and NotReady once the pool has started.
        """
        self._refuse_late(f"limit {name!r}")
        if not isinstance(kind, RateKind):
            raise BadOption(
                f"limit {name!r}: {kind!r} cannot be shared by job types: give Rate or Window"
                " (Concurrency belongs to one job type: write it into its limits=[...])"
            )
        if by is not None:
            if kind.by is not None:
                raise BadOption(f"limit {name!r}: give by= once, to limit() or to {type(kind).__name__}")
            kind = replace(kind, by=by)
        limit = Limit(check_name(name), kind)
        if self.limits.setdefault(name, limit) != limit:
            raise BadOption(
                f"limit {name!r} exists with other values ({self.limits[name].kind}): use that one, or another name"
            )
        return limit

    def batch(
        self,
        *,
        on_success: JobType[..., ..., Any] | None = None,
        on_complete: JobType[..., ..., Any] | None = None,
        on_dead: JobType[..., ..., Any] | None = None,
        args: Mapping[str, Any] | None = None,
        description: str = "",
    ) -> Batch:
        """Jobs that belong together: `with pool.batch(on_success=report) as batch:`. What the block enqueues joins it.

        The callbacks are jobs that get `args`. Each is enqueued once: `on_success` when every member has ended and none is
        dead, `on_complete` when every member has ended, `on_dead` when the first one is dead. Raises BadArguments if a
        callback does not take `args`, and BadOption.
        """
        callbacks = {"success": on_success, "complete": on_complete, "dead": on_dead}
        return self.enqueuer.new_batch(callbacks, args, description, lambda: self.async_enqueuer.sender)

    def workflow(self, name: str, /, *, source: str | int | None = None) -> Workflow:
        """Jobs that wait for one another. `flow.add(handle, ...)` adds nodes, `flow.start()` stores all. Raises BadOption."""
        return self.enqueuer.new_workflow(name, source, lambda: self.async_enqueuer.sender)

    @MadeOnce
    def enqueuer(self) -> Enqueuer:
        """Enqueues jobs by name, with arguments checked against the job types of this pool."""
        with FORK_SAFE:
            from dayjob.enqueue.enqueuer import Enqueuer  # noqa: PLC0415 - loads the Redis client

        return Enqueuer(self.namespace, **self._sending())

    @MadeOnce
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
        if not self._included:
            import_modules(self.include)
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

    @property
    def outbox(self) -> TransactionOutbox | None:
        """The outbox, which keeps jobs enqueued in a database transaction until its commit; or None."""
        if self._given_outbox != "django":
            return self._given_outbox
        from dayjob.django.outbox import DjangoOutbox  # noqa: PLC0415 - only programs that use Django have it

        return DjangoOutbox()

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
            "outbox": self.outbox,
        }
