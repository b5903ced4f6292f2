"""Middleware, which wraps every job, and lifespans, which wrap the lifetime of a pool.

Pure: this module composes functions and runs none of them by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from dayjob.errors import BadOption, BadSignature
from dayjob.handlers.signature import NOT_YET, Colour, Function, NoContext, Role
from dayjob.job import Job
from dayjob.names import check_headers

T = TypeVar("T")
SyncCall = Callable[[Any, Any], Any]
AsyncCall = Callable[[Any, Any], Awaitable[Any]]


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Skipped:
    """The type of `SKIPPED`."""

    def __repr__(self) -> str:
        return "SKIPPED"


#: The result of a job that a middleware did not run.
SKIPPED: Final = Skipped()


class ServerAddress(NamedTuple):
    """The server that has the jobs: its host and port, or the path of its socket."""

    host: str
    port: int | None


#: Where the server is; None if it is embedded, and as long as no connection has found it by sentinels or cluster nodes.
FindServer = Callable[[], ServerAddress | None]


@dataclass(slots=True)
class Outgoing:
    """One enqueue call, as its hooks see it."""

    #: The job name, and how many jobs of that name the call enqueues.
    name: str
    count: int
    #: Texts that travel with every job of the call. A hook may change them before its `yield`.
    headers: dict[str, str]
    #: After the `yield`: the jobs that were stored, or that will be sent at the commit. Duplicates are left out.
    jobs: Sequence[Job] = ()
    #: Where the jobs go; None in a testing block and for a node of a workflow. Before the `yield` it may be None as long
    #: as no connection has found it by sentinels or cluster nodes.
    server: ServerAddress | None = None


class EnqueueHook:
    """A function wrapped around every enqueue call of a pool: a generator with one `yield`. Raises BadSignature."""

    def __init__(self, fn: Callable[[Outgoing], Generator[None]]) -> None:
        function = Function(fn)
        if function.yields != "sync" or len(function.parameters()) != 1:
            raise function.bad(
                "an enqueue hook is a plain generator with one 'yield', where the jobs are sent: (outgoing: Outgoing)"
            )
        self.fn = fn
        self.location = function.location


def carriers(
    variable: ContextVar[T], name: str | None, parse: Callable[[str], T] | None
) -> tuple[Callable[[Outgoing], Generator[None]], Callable[[Job], Generator[None]]]:
    """An enqueue hook and a middleware that let a context variable travel with jobs, as a header. Raises BadOption."""
    if not isinstance(variable, ContextVar):
        raise BadOption(f"carry: {variable!r} is no context variable")
    header = (variable.name if name is None else name).lower()
    check_headers({header: ""}, "carry")

    def send(outgoing: Outgoing) -> Generator[None]:
        value = variable.get(None)
        # What using(headers=...) gives this one call counts more.
        if value is not None and header not in outgoing.headers:
            outgoing.headers[header] = str(value)
        yield

    def receive(job: Job) -> Generator[None]:
        text = job.headers.get(header)
        if text is not None:
            variable.set(text if parse is None else parse(text))  # type: ignore[arg-type]
        yield

    return send, receive


class Middleware:
    """A function wrapped around every job: a generator with one `yield`, or a function that takes `call_next`.

    Raises BadSignature when it is neither, when it has parameters that cannot be provided, or when it is async and would
    wrap sync jobs.
    """

    def __init__(self, fn: Callable[..., Any], only: Colour | None = None, context: type = NoContext) -> None:
        self.fn = fn
        self._function = function = Function(fn, context)
        self.location = function.location
        if only not in (None, "sync", "async"):
            raise BadOption(f"middleware {function.name}: only={only!r}: write 'sync' or 'async'")
        self._wants: list[Role] | None = None
        parameters = function.parameters()
        self.is_async = function.is_async or function.yields == "async"
        self.yields = function.yields is not None
        if any(one.kind not in _BY_POSITION for one in parameters):
            raise function.bad("a middleware is called by position: (ctx, job) or (ctx, job, call_next)")
        if not self.yields and (not parameters or parameters[-1].name != "call_next"):
            raise function.bad("a middleware has one 'yield', where the job runs, or takes 'call_next' last")
        #: The kind of jobs that it wraps, "sync" or "async", or None for both.
        self.only = self._colour(only)
        with suppress(*NOT_YET):
            self._wants = self._read()

    @property
    def wants(self) -> list[Role]:
        """Its parameters in order: "context", "job", both or neither. Raises BadSignature."""
        if self._wants is None:
            try:
                self._wants = self._read()
            except NOT_YET as error:
                raise self._function.bad(f"a type it asks for does not exist: {error}") from None
        return self._wants

    def starter(self) -> Callable[..., Any]:
        """The function in a form that can always be called with (ctx, job) or (ctx, job, call_next)."""
        fn, wants = self.fn, self.wants
        if len(wants) == 2:
            return fn
        if wants == ["context"]:
            return lambda ctx, _job, *more: fn(ctx, *more)
        if wants == ["job"]:
            return lambda _ctx, job, *more: fn(job, *more)
        return lambda _ctx, _job, *more: fn(*more)

    def two_yields(self) -> BadSignature:
        """The error for a generator that yields a second time."""
        return self._function.bad("a middleware has one 'yield'; this one came to a second")

    def _colour(self, only: Colour | None) -> Colour | None:
        if self.yields and not self.is_async:
            return only
        if self.yields and only != "async":
            raise self._function.bad(
                "an async generator can wrap async jobs only: write @pool.middleware(only='async'), "
                "or a plain generator for both"
            )
        own: Colour = "async" if self.is_async else "sync"
        if only not in (None, own):
            raise self._function.bad(
                f"with 'call_next', this middleware can wrap {own} jobs only, not {only} ones"
            )
        return own

    def _read(self) -> list[Role]:
        function = self._function
        parameters = function.parameters()
        if not self.yields:
            parameters = parameters[:-1]
        wants: list[Role] = []
        for number, one in enumerate(parameters):
            hint = function.hint(one)
            role = function.role(hint)
            if role == "argument" and hint is Any:
                role = "job" if number == 1 or one.name == "job" else "context"
            wants.append(role)
        if wants not in ([], ["context"], ["job"], ["context", "job"]):
            last = "" if self.yields else ", call_next"
            raise function.bad(
                f"a middleware takes the context, then the job, and may leave out either: (ctx, job{last})"
            )
        return wants


def compose_sync(middlewares: Iterable[Middleware], handler: SyncCall) -> SyncCall:
    """`handler` with every middleware for sync jobs around it, the first outermost; itself when there is none."""
    wrapped = handler
    for middleware in reversed([one for one in middlewares if one.only != "async"]):
        wrapped = (_sync_yield if middleware.yields else _sync_next)(middleware, wrapped)
    return wrapped


def compose_async(middlewares: Iterable[Middleware], handler: AsyncCall) -> AsyncCall:
    """`handler` with every middleware for async jobs around it, the first outermost; itself when there is none."""
    wrapped = handler
    for middleware in reversed([one for one in middlewares if one.only != "sync"]):
        if not middleware.yields:
            wrapped = _async_next(middleware, wrapped)
        elif middleware.is_async:
            wrapped = _async_yield(middleware, wrapped)
        else:
            wrapped = _mixed_yield(middleware, wrapped)
    return wrapped


def _sync_yield(middleware: Middleware, inner: SyncCall) -> SyncCall:
    start = middleware.starter()

    def around(ctx: Any, job: Any) -> Any:
        steps = start(ctx, job)
        if not _begin(steps):
            return SKIPPED
        try:
            result = inner(ctx, job)
        except BaseException as error:
            # Every exception is thrown into the generator, so that its `finally` runs now, before the attempt ends.
            _throw(middleware, steps, error)
            return None
        _finish(middleware, steps, result)
        return result

    return around


def _mixed_yield(middleware: Middleware, inner: AsyncCall) -> AsyncCall:
    start = middleware.starter()

    async def around(ctx: Any, job: Any) -> Any:
        steps = start(ctx, job)
        if not _begin(steps):
            return SKIPPED
        try:
            result = await inner(ctx, job)
        except BaseException as error:
            _throw(middleware, steps, error)
            return None
        _finish(middleware, steps, result)
        return result

    return around


def _async_yield(middleware: Middleware, inner: AsyncCall) -> AsyncCall:
    start = middleware.starter()

    async def around(ctx: Any, job: Any) -> Any:
        steps: AsyncGenerator[Any, Any] = start(ctx, job)
        try:
            await anext(steps)
        except StopAsyncIteration:
            return SKIPPED
        try:
            result = await inner(ctx, job)
        except BaseException as error:
            await _athrow(middleware, steps, error)
            return None
        try:
            await steps.asend(result)
        except StopAsyncIteration:
            return result
        await steps.aclose()
        raise middleware.two_yields()

    return around


def _sync_next(middleware: Middleware, inner: SyncCall) -> SyncCall:
    start = middleware.starter()

    def around(ctx: Any, job: Any) -> Any:
        called = False

        def call_next() -> Any:
            nonlocal called
            called = True
            return inner(ctx, job)

        result = start(ctx, job, call_next)
        return result if called else SKIPPED

    return around


def _async_next(middleware: Middleware, inner: AsyncCall) -> AsyncCall:
    start = middleware.starter()

    async def around(ctx: Any, job: Any) -> Any:
        called = False

        async def call_next() -> Any:
            nonlocal called
            called = True
            return await inner(ctx, job)

        result = await start(ctx, job, call_next)
        return result if called else SKIPPED

    return around


Steps = Generator[Any, Any, Any]


def _begin(steps: Steps) -> bool:
    try:
        next(steps)
    except StopIteration:
        return False
    return True


def _finish(middleware: Middleware, steps: Steps, result: Any) -> None:
    try:
        steps.send(result)
    except StopIteration:
        return
    steps.close()
    raise middleware.two_yields()


def _throw(middleware: Middleware, steps: Steps, error: BaseException) -> None:
    """Raise `error` at the `yield`; return if the generator catches it and ends."""
    try:
        steps.throw(error)
    except StopIteration:
        return
    except RuntimeError as raised:
        _unwrap(raised, error)
    steps.close()
    raise middleware.two_yields() from error


async def _athrow(middleware: Middleware, steps: AsyncGenerator[Any, Any], error: BaseException) -> None:
    try:
        await steps.athrow(error)
    except StopAsyncIteration:
        return
    except RuntimeError as raised:
        _unwrap(raised, error)
    await steps.aclose()
    raise middleware.two_yields() from error


def _unwrap(raised: RuntimeError, error: BaseException) -> None:
    # A generator turns a StopIteration that passes through it into a RuntimeError (PEP 479).
    if isinstance(error, StopIteration | StopAsyncIteration) and raised.__cause__ is error:
        raise error
    raise raised


class Lifespan:
    """A function wrapped around the lifetime of a pool in each process: a generator with one `yield`, sync or async.

    Raises BadSignature when it has required parameters or no `yield`.
    """

    def __init__(self, fn: Callable[[], Any]) -> None:
        function = Function(fn)
        self.fn = fn
        self.location = function.location
        self.is_async = function.yields == "async"
        if function.yields is None:
            raise function.bad(
                "a lifespan has one 'yield': the code before it runs before the pool starts, the code after it once the pool has stopped"
            )
        if any(one.default is one.empty for one in function.parameters()):
            raise function.bad("a lifespan takes no parameters")

    def around(self) -> AbstractContextManager[Any]:
        """The sync lifespan as a context manager, for one start and stop of the pool."""
        return contextmanager(self.fn)()

    def aaround(self) -> AbstractAsyncContextManager[Any]:
        """The async lifespan as a context manager, for one start and stop of the pool."""
        return asynccontextmanager(self.fn)()
