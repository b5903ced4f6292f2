"""Job types and the registry that holds them by name. A job type is a handler with options and enqueue methods.

This module sends nothing: a job type encodes its arguments and passes them to the enqueuer of its pool.
"""

from __future__ import annotations

import copy
import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

import msgspec

from dayjob.errors import BadOption, BadSignature, UnknownJob
from dayjob.handlers.arguments import Arguments, Called, Gaps, encode_unchecked
from dayjob.handlers.calls import Calls, OwnPool
from dayjob.handlers.chains import Chain, Takes
from dayjob.handlers.codecs import DEFAULT, Codecs
from dayjob.handlers.job_keys import KeyReader
from dayjob.handlers.results import Results
from dayjob.handlers.signature import Function, NoContext
from dayjob.job import Job, require_stored
from dayjob.names import check_name
from dayjob.option_checks import Seconds, seconds
from dayjob.options import EnqueueOptions, JobOptions, Using, read_using

__all__ = [
    "JobType",
    "Registry",
    "encode_unchecked",
    "epoch",
    "wait_of",
]

Q = ParamSpec("Q")
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")


#: How other libraries enqueue a job, and how dayjob does.
_OTHER_ENQUEUES = {
    "delay": "enqueue(...)",
    "send": "enqueue(...)",
    "perform_async": "enqueue(...)",
    "apply_async": "enqueue(...), or enqueue_in(seconds, ...) and enqueue_at(when, ...) to run it later",
}


class JobType(Calls[P, R_co], Generic[Q, P, R_co]):
    """A handler with its name and options. It can be called like the function, or enqueued.

    `Q` are the parameters to call it with, `P` those to enqueue it with: the same without context and job.
    The enqueue methods raise BadArguments before anything is sent, and StoreError if the request to Redis fails.
    """

    def __init__(
        self,
        fn: Callable[Q, R_co],
        *,
        name: str,
        options: JobOptions,
        pool: OwnPool,
        context: type = NoContext,
        codecs: Codecs = DEFAULT,
    ) -> None:
        function = Function(fn, context)
        functools.update_wrapper(self, function.plain, updated=())
        self.__wrapped__ = fn
        self.name = check_name(name)
        self.fn = fn
        self.options = options
        #: Computed once, because the worker needs it for every job.
        self.is_async = function.is_async
        #: Where it is defined, as `shop/jobs.py:14`.
        self.location = function.location
        #: What `using()` has set so far.
        self.enqueue_options = EnqueueOptions(unique_until=options.unique_until)
        #: The same with `unique`, once it was needed. A copy of the options takes a tenth of the time of an enqueue.
        self._unique_options: EnqueueOptions | None = None
        self._function = function
        key = options.fair_by
        self._arguments = Arguments(name, function, options.redact, codecs, key.by if key else ())
        #: Computes the keys of its jobs.
        self.keys = KeyReader(functools.cache(self._arguments.default))
        self._results = Results(function, codecs)
        self._codecs = codecs
        if options.keep is not None:
            self._results.check()
        self._pool = pool

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> R_co:
        """Call the function directly, without enqueueing."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job type {self.name!r} {self.location}>"

    @property
    def signature(self) -> str:
        """The signature as error messages show it: `create_watch(user_id: int, email: str = "")`."""
        return self._arguments.plan.shown

    @property
    def wants_context(self) -> bool:
        """Whether the handler takes the context first."""
        return self._arguments.plan.wants_context

    @property
    def wants_job(self) -> bool:
        """Whether the handler takes the job, after the context."""
        return self._arguments.plan.wants_job

    @property
    def open(self) -> bool:
        """Whether the handler takes arguments of any name."""
        plan = self._arguments.plan
        return plan.anything or plan.rest is not None

    def arguments(self) -> list[tuple[inspect.Parameter, Any]]:
        """The arguments in order, each with its type as msgspec describes it. Raises BadSignature."""
        infos = self._arguments.plan.infos
        return [(one, infos[one.name]) for one in self._function.parameters() if one.name in infos]

    @property
    def resolved(self) -> bool:
        """Whether all types in the signature have been found."""
        return self._arguments.resolved

    def resolve(self) -> None:
        """Look up every type in the signature now. Raises BadSignature."""
        self._arguments.resolve()

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Check the arguments strictly and encode them as a JSON object. Raises BadArguments."""
        return self._arguments.encode(args, kwargs)

    def encode_with_gaps(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[bytes, Gaps]:
        """Encode arguments of which some are results of nodes, and return the places of those. Raises BadArguments."""
        return self._arguments.encode_with_gaps(args, kwargs)

    @property
    def first_argument(self) -> str | None:
        """The name of the argument that may be passed first, without a name; None if there is none."""
        plan = self._arguments.plan
        return plan.names[0] if plan.by_position else None

    def decode_result(self, raw: bytes) -> Any:
        """What the handler returned, from what `encode_result` made of it. Raises DayjobError."""
        return self._results.decode(msgspec.json.decode(raw)["result"])

    def encode_value(self, value: Any) -> bytes:
        """A value that a job emits as JSON, on one line. Raises TypeError, ValueError or RecursionError."""
        raw = self._codecs.encode(value)
        if b"null" in raw and (number := self._codecs.not_finite(value)) is not None:
            raise ValueError(f"it has {number}, which JSON cannot carry")
        # A msgspec.Raw may have line ends.
        return raw if b"\n" not in raw and b"\r" not in raw else msgspec.json.encode(msgspec.json.decode(raw))

    def encode_result(self, value: Any) -> bytes:
        """Encode what the handler returned. Raises TypeError, ValueError or RecursionError if it cannot be kept."""
        return self._results.encode(value)

    @property
    def call_args(self) -> Callable[[bytes | msgspec.Raw], Called]:
        """A function that decodes a JSON object or null to the (args, kwargs) of the handler, after context and job.

        It raises BadArguments. An argument that was not sent gets the handler's own default.
        """
        return self._arguments.call_args

    def using(self, **options: Unpack[Using]) -> JobType[Q, P, R_co]:
        """A copy of this job type with options for the jobs that it enqueues. Raises BadOption."""
        chosen = copy.copy(self)
        chosen.enqueue_options = read_using(options, self.enqueue_options)
        chosen._unique_options = None
        return chosen

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue a job."""
        raw = self._arguments.encode(args, kwargs)
        return require_stored(self._pool.enqueuer.sender.submit(self.name, raw, self.enqueue_options))

    def enqueue_in(self, delay: Seconds, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Schedule a job to run `delay` seconds from now."""
        return require_stored(self._submit(args, kwargs, delay=wait_of(delay)))

    def enqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Schedule a job to run at `when`, which must have a time zone."""
        return require_stored(self._submit(args, kwargs, at=epoch(when)))

    def enqueue_unique(self, /, *args: P.args, **kwargs: P.kwargs) -> Job | None:
        """Enqueue a job unless another one holds its unique key; then returns None."""
        raw = self._arguments.encode(args, kwargs)
        return self._pool.enqueuer.sender.submit(self.name, raw, self._unique())

    def enqueue_unique_in(self, delay: Seconds, /, *args: P.args, **kwargs: P.kwargs) -> Job | None:
        """Like enqueue_unique, to run `delay` seconds from now."""
        return self._submit(args, kwargs, unique=True, delay=wait_of(delay))

    def enqueue_unique_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Job | None:
        """Like enqueue_unique, to run at `when`, which must have a time zone."""
        return self._submit(args, kwargs, unique=True, at=epoch(when))

    def enqueue_many(self, items: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Enqueue many jobs, a few hundred per round trip. Each item has the arguments of one job.

        All items are checked before the first job is sent.
        """
        return self._pool.enqueuer.sender.submit_many(self.name, self._items(items), self.enqueue_options)

    async def aenqueue_many(self, items: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """`enqueue_many`, awaited."""
        sender = self._pool.async_enqueuer.sender
        return await sender.submit_many(self.name, self._items(items), self.enqueue_options)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """`enqueue`, awaited."""
        return require_stored(await self._asubmit(args, kwargs))

    async def aenqueue_in(self, delay: Seconds, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """`enqueue_in`, awaited."""
        return require_stored(await self._asubmit(args, kwargs, delay=wait_of(delay)))

    async def aenqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """`enqueue_at`, awaited."""
        return require_stored(await self._asubmit(args, kwargs, at=epoch(when)))

    async def aenqueue_unique(self, /, *args: P.args, **kwargs: P.kwargs) -> Job | None:
        """`enqueue_unique`, awaited."""
        raw = self._arguments.encode(args, kwargs)
        return await self._pool.async_enqueuer.sender.submit(self.name, raw, self._unique())

    async def aenqueue_unique_in(self, delay: Seconds, /, *args: P.args, **kwargs: P.kwargs) -> Job | None:
        """`enqueue_unique_in`, awaited."""
        return await self._asubmit(args, kwargs, unique=True, delay=wait_of(delay))

    async def aenqueue_unique_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Job | None:
        """`enqueue_unique_at`, awaited."""
        return await self._asubmit(args, kwargs, unique=True, at=epoch(when))

    @overload
    def then(self: JobType[..., ..., Coroutine[Any, Any, T]], following: Takes[T, S]) -> Chain[P, S]: ...

    @overload
    def then(self, following: Takes[R_co, S]) -> Chain[P, S]: ...

    def then(self, following: Any) -> Any:
        """A chain: this job, then `following`, whose first argument is the result of this job. Raises BadOption."""
        return Chain(self, following)

    if not TYPE_CHECKING:  # type checkers must still report every unknown attribute

        def __getattr__(self, name: str) -> Any:
            hint = _OTHER_ENQUEUES.get(name)
            advice = "" if hint is None else f". In dayjob, use {hint}"
            raise AttributeError(f"a job type has no attribute {name!r}{advice}", name=name, obj=self)

    def _unique(self) -> EnqueueOptions:
        if self._unique_options is None:
            self._unique_options = replace(self.enqueue_options, unique=True)
        return self._unique_options

    def _submit(self, args: Sequence[Any], kwargs: Mapping[str, Any], **changes: Any) -> Job | None:
        raw = self._arguments.encode(args, kwargs)
        options = replace(self.enqueue_options, **changes)
        return self._pool.enqueuer.sender.submit(self.name, raw, options)

    async def _asubmit(self, args: Sequence[Any], kwargs: Mapping[str, Any], **changes: Any) -> Job | None:
        raw = self._arguments.encode(args, kwargs)
        options = replace(self.enqueue_options, **changes) if changes else self.enqueue_options
        return await self._pool.async_enqueuer.sender.submit(self.name, raw, options)

    def _items(self, items: Iterable[Mapping[str, Any]]) -> list[tuple[bytes, EnqueueOptions]]:
        options = self.enqueue_options
        if options.id is not None:
            raise BadOption("enqueue_many: jobs cannot share one id; remove using(id=...)")
        return [(self._arguments.encode((), item), options) for item in items]

    def pool_runs(self, place: tuple[str, str], name: str) -> bool:
        """Whether its pool runs the jobs of this name that are enqueued at `place`."""
        return self._pool.enqueuer.sender.place == place and name in self._pool.registry

    def batch_of(self, ids: tuple[str, ...]) -> Any:
        """The batch with the first of these ids, which is in those with the others."""
        return self._pool.enqueuer.batch(*ids)

    @property
    def pool(self) -> OwnPool:
        """The pool that it belongs to."""
        return self._pool


class Registry:
    """The job types of one pool, by name."""

    def __init__(self) -> None:
        self._types: dict[str, JobType[..., ..., Any]] = {}

    def add(self, job_type: JobType[..., ..., Any]) -> None:
        """Add a job type. Raises BadOption if another function has its name."""
        first = self._types.get(job_type.name)
        if first is not None and not (_same_function(first, job_type) or _is_cell_again(first, job_type)):
            raise BadOption(
                f"job {job_type.name!r} at {job_type.location} is already defined at {first.location}: "
                "give one of them another name"
            )
        self._types[job_type.name] = job_type

    def get(self, name: str) -> JobType[..., ..., Any]:
        """The job type of that name. Raises UnknownJob."""
        try:
            return self._types[name]
        except KeyError:
            raise UnknownJob(f"this pool has no job {name!r}{self._nearest(name)}") from None

    def names(self) -> list[str]:
        """All names, in the order of registration."""
        return list(self._types)

    def resolve_all(self) -> list[BadSignature]:
        """Look up all types that did not exist at registration. Returns an error for each that is still missing."""
        problems = []
        for job_type in self:
            if not job_type.resolved:
                try:
                    job_type.resolve()
                except BadSignature as error:
                    problems.append(error)
        return problems

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def __len__(self) -> int:
        return len(self._types)

    def __iter__(self) -> Iterator[JobType[..., ..., Any]]:
        return iter(list(self._types.values()))

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(str(name), self._types, n=1)
        if near:
            return f"; did you mean {near[0]!r}?"
        names = sorted(self._types)
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        return (
            f"; it has {', '.join(names[:10])}{more}"
            if names
            else "; it has none: register one with @pool.job"
        )


def _is_cell_again(first: JobType[..., ..., Any], again: JobType[..., ..., Any]) -> bool:
    """Whether a cell of a notebook, or a line at a prompt, defines a function anew: the newest one counts."""
    # Only an interactive session has a main module without a file.
    if hasattr(sys.modules.get("__main__"), "__file__"):
        return False
    made = [
        (getattr(one.fn, "__module__", ""), getattr(one.fn, "__qualname__", "")) for one in (first, again)
    ]
    return made[0] == made[1] and made[0][0] == "__main__"


def _same_function(one: JobType[..., ..., Any], other: JobType[..., ..., Any]) -> bool:
    # A module that is imported again defines a new function with the same name and location.
    return one.fn is other.fn or (
        one.location == other.location
        and _full_name(one.fn) == _full_name(other.fn)
        and _full_name(one.fn) != ""
    )


def _full_name(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__qualname__", "")
    return f"{fn.__module__}.{name}" if name else ""


def check_handle(handle: Any, where: str) -> None:
    """Raise BadOption, which names `where`, if this is no job type."""
    if not isinstance(handle, JobType):
        raise BadOption(f"{where}: {handle!r} is no job: write @pool.job above the function, and give that")


def wait_of(delay: Seconds) -> float:
    """`delay` as float seconds. Raises BadOption if it is negative or not a duration."""
    wait = seconds(delay, "enqueue_in: delay")
    if wait < 0:
        raise BadOption(f"enqueue_in: delay={delay!r}: must not be negative; enqueue() is for now")
    return wait


def epoch(when: datetime) -> float:
    """`when` as seconds since the epoch. Raises BadOption if it has no time zone or is not a datetime."""
    if not isinstance(when, datetime):
        raise BadOption(
            f"enqueue_at: when={when!r}: give a datetime with a time zone, or use enqueue_in for seconds"
        )
    if when.utcoffset() is None:
        raise BadOption(
            f"enqueue_at: when={when!r} has no time zone: write datetime.now(UTC) + ..., or "
            "when.replace(tzinfo=ZoneInfo('Europe/Paris'))"
        )
    return when.timestamp()
