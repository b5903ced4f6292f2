"""Calls: what a job type does beside enqueueing: wait for results, enqueue and wait, and that for many jobs.

This module sends nothing: it encodes arguments, passes them to the enqueuer of the pool, and decodes results.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from dayjob.errors import BadOption, NotReady
from dayjob.handlers.arguments import Arguments
from dayjob.handlers.results import Results
from dayjob.job import Job
from dayjob.options import EnqueueOptions, JobOptions

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

#: The arguments of one job of a map, as the caller passes them.
Item = Mapping[str, Any]
#: The same with the arguments encoded.
EncodedItem = tuple[Item, bytes]


class MapOptions(NamedTuple):
    """How a map is done."""

    #: Jobs that are enqueued and whose results the caller has not taken yet, at most.
    in_flight: int
    #: Whether results come in the order of the items, or as they arrive.
    ordered: bool
    #: Seconds for the whole map.
    timeout: float | None


class Submits(Protocol):
    """What a job type sends its jobs to."""

    @property
    def place(self) -> tuple[str, str]:
        """The namespace and the server to which this sends."""
        ...

    def submit(self, name: str, args: bytes, options: EnqueueOptions, /) -> Job | None:
        """Enqueue one job; None if it is unique and another job holds its unique key."""
        ...

    def submit_many(
        self, name: str, items: Sequence[tuple[bytes, EnqueueOptions]], options: EnqueueOptions, /
    ) -> list[Job]:
        """Enqueue many jobs of one name. Duplicates are left out of the answer."""
        ...


class AsyncSubmits(Protocol):
    """Like Submits, for async code."""

    async def submit(self, name: str, args: bytes, options: EnqueueOptions, /) -> Job | None: ...

    async def submit_many(
        self, name: str, items: Sequence[tuple[bytes, EnqueueOptions]], options: EnqueueOptions, /
    ) -> list[Job]: ...


class OwnEnqueuer(Protocol):
    """The part of a pool's enqueuer that its job types use."""

    @property
    def sender(self) -> Submits: ...

    def result(self, job: Job | str, timeout: float | None, /) -> Any:
        """Wait for the job and return its result."""
        ...

    def submit_call(self, name: str, args: bytes, options: EnqueueOptions, timeout: float | None, /) -> Any:
        """Enqueue a job, wait for it and return its result."""
        ...

    def submit_map(
        self, name: str, items: Iterable[EncodedItem], options: EnqueueOptions, how: MapOptions, /
    ) -> Iterator[tuple[Item, Any]]:
        """Enqueue a job for each item, and return the items with their results."""
        ...

    def batch(self, batch_id: str, /, *above: str) -> Any:
        """The batch with this id."""
        ...

    def running_workflow(self, workflow_id: str, added: Any, /) -> Any:
        """The workflow with this id, whose nodes a running node adds to `added`."""
        ...

    def new_workflow(self, name: str, source: str | int | None, /) -> Any:
        """A workflow that is stored when it starts."""
        ...

    def node_results(self, workflow_id: str, numbers: Sequence[int], /) -> list[bytes | None]:
        """The results of nodes of a workflow."""
        ...


class OwnAsyncEnqueuer(Protocol):
    """Like OwnEnqueuer, for async code."""

    @property
    def sender(self) -> AsyncSubmits: ...

    async def result(self, job: Job | str, timeout: float | None, /) -> Any: ...  # noqa: ASYNC109

    async def node_results(self, workflow_id: str, numbers: Sequence[int], /) -> list[bytes | None]: ...

    async def submit_call(
        self,
        name: str,
        args: bytes,
        options: EnqueueOptions,
        timeout: float | None,  # noqa: ASYNC109
        /,
    ) -> Any: ...

    def submit_map(
        self, name: str, items: Iterable[EncodedItem], options: EnqueueOptions, how: MapOptions, /
    ) -> AsyncIterator[tuple[Item, Any]]: ...


class OwnPool(Protocol):
    """The part of a pool that its job types use."""

    @property
    def registry(self) -> Container[str]: ...

    @property
    def enqueuer(self) -> OwnEnqueuer: ...

    @property
    def async_enqueuer(self) -> OwnAsyncEnqueuer: ...


class Calls(Generic[P, R_co]):
    """The part of a job type that waits for results."""

    name: str
    location: str
    options: JobOptions
    enqueue_options: EnqueueOptions
    _arguments: Arguments
    _results: Results
    _pool: OwnPool

    @overload
    def result(
        self: Calls[..., Coroutine[Any, Any, T]], job: Job | str, timeout: float | None = None
    ) -> T: ...

    @overload
    def result(self, job: Job | str, timeout: float | None = None) -> R_co: ...

    def result(self, job: Job | str, timeout: float | None = None) -> Any:
        """Wait for a job and return its result, in the type of the handler's return annotation.

        Raises ResultTimeout after `timeout` seconds, JobFailed if the job is dead, and NotReady if this job type keeps
        no results, or inside a job of the same pool if the result is not there yet.
        """
        return self._results.decode(self._pool.enqueuer.result(self._kept(job), timeout))

    @overload
    async def aresult(
        self: Calls[..., Coroutine[Any, Any, T]],
        job: Job | str,
        timeout: float | None = None,  # noqa: ASYNC109 - it bounds the wait, and is part of the message
    ) -> T: ...

    @overload
    async def aresult(self, job: Job | str, timeout: float | None = None) -> R_co: ...  # noqa: ASYNC109

    async def aresult(self, job: Job | str, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """`result`, awaited."""
        return self._results.decode(await self._pool.async_enqueuer.result(self._kept(job), timeout))

    # Type checkers cannot add a keyword to the parameters of a function, so with `timeout` they do not check the arguments.

    @overload
    def call(self: Calls[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def call(
        self: Calls[..., Coroutine[Any, Any, T]], /, *args: Any, timeout: float | None, **kwargs: Any
    ) -> T: ...

    @overload
    def call(self, /, *args: Any, timeout: float | None, **kwargs: Any) -> R_co: ...

    def call(self, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a job, wait up to `timeout` seconds for it, and return its result, also if this job type has no `keep`.

        The job is sent at once, also inside a transaction. Raises as `enqueue` and `result` do, and NotReady inside a job of
        the same pool. After a ResultTimeout the job may still run.
        """
        timeout = kwargs.pop("timeout", None)
        raw = self._call_args(args, kwargs)
        found = self._pool.enqueuer.submit_call(self.name, raw, self.enqueue_options, timeout)
        return self._results.decode(found)

    @overload
    async def acall(self: Calls[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    async def acall(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    async def acall(
        self: Calls[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        timeout: float | None,  # noqa: ASYNC109
        **kwargs: Any,
    ) -> T: ...

    @overload
    async def acall(self, /, *args: Any, timeout: float | None, **kwargs: Any) -> R_co: ...  # noqa: ASYNC109

    async def acall(self, /, *args: Any, **kwargs: Any) -> Any:
        """`call`, awaited."""
        timeout = kwargs.pop("timeout", None)
        raw = self._call_args(args, kwargs)
        sender = self._pool.async_enqueuer
        return self._results.decode(await sender.submit_call(self.name, raw, self.enqueue_options, timeout))

    @overload
    def map(
        self: Calls[..., Coroutine[Any, Any, T]],
        items: Iterable[Item],
        /,
        *,
        in_flight: int = ...,
        ordered: bool = ...,
        timeout: float | None = ...,
    ) -> Iterator[tuple[Item, T]]: ...

    @overload
    def map(
        self,
        items: Iterable[Item],
        /,
        *,
        in_flight: int = ...,
        ordered: bool = ...,
        timeout: float | None = ...,
    ) -> Iterator[tuple[Item, R_co]]: ...

    def map(
        self,
        items: Iterable[Item],
        /,
        *,
        in_flight: int = 100,
        ordered: bool = True,
        timeout: float | None = None,
    ) -> Iterator[tuple[Item, Any]]:
        """Enqueue a job for each item, a dict of its arguments, and yield each item with the result of its job.

        At most `in_flight` jobs are enqueued whose results the caller has not taken. `ordered=False` yields the results
        as they arrive. Raises as `call` does: a dead job raises JobFailed and ends the iteration; jobs in flight still
        run.
        """
        how = self._map_options(in_flight, ordered, timeout)
        pairs = self._pool.enqueuer.submit_map(self.name, self._encoded(items), self.enqueue_options, how)
        return ((item, self._results.decode(value)) for item, value in pairs)

    @overload
    def amap(
        self: Calls[..., Coroutine[Any, Any, T]],
        items: Iterable[Item],
        /,
        *,
        in_flight: int = ...,
        ordered: bool = ...,
        timeout: float | None = ...,
    ) -> AsyncIterator[tuple[Item, T]]: ...

    @overload
    def amap(
        self,
        items: Iterable[Item],
        /,
        *,
        in_flight: int = ...,
        ordered: bool = ...,
        timeout: float | None = ...,
    ) -> AsyncIterator[tuple[Item, R_co]]: ...

    def amap(
        self,
        items: Iterable[Item],
        /,
        *,
        in_flight: int = 100,
        ordered: bool = True,
        timeout: float | None = None,
    ) -> AsyncIterator[tuple[Item, Any]]:
        """`map`, as an async iterator."""
        how = self._map_options(in_flight, ordered, timeout)
        sender = self._pool.async_enqueuer
        pairs = sender.submit_map(self.name, self._encoded(items), self.enqueue_options, how)
        return ((item, self._results.decode(value)) async for item, value in pairs)

    def _kept(self, job: Job | str) -> Job:
        """The job whose result is wanted. Raises NotReady."""
        if self.options.keep is None:
            raise NotReady(
                f"{self.name} keeps no results: write @pool.job(keep=3600), or call(...)    {self.location}"
            )
        return Job(self.name, id=job) if isinstance(job, str) else job

    def _call_args(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The encoded arguments of a call. Raises BadArguments, and BadSignature if its result could not be kept."""
        self._results.check()
        if "timeout" in self._arguments.plan.infos:
            raise NotReady(
                f"{self.name} has an argument named timeout, which call() and acall() cannot pass: "
                f"use enqueue(...) and result(job, timeout=...)    {self.location}"
            )
        return self._arguments.encode(args, kwargs)

    def _map_options(self, in_flight: int, ordered: bool, timeout: float | None) -> MapOptions:
        self._results.check()
        if not isinstance(in_flight, int) or not 1 <= in_flight <= 10_000:
            raise BadOption(f"map(in_flight={in_flight!r}): give a number from 1 to 10,000")
        if self.enqueue_options.unique or self.enqueue_options.id is not None:
            raise BadOption(
                "map: each item is a job of its own; remove using(id=...) and using(unique_key=...)"
            )
        return MapOptions(in_flight, ordered, timeout)

    def _encoded(self, items: Iterable[Item]) -> Iterator[EncodedItem]:
        return ((item, self._arguments.encode((), item)) for item in items)
