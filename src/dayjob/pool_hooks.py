"""What a pool wraps around its jobs: middleware, lifespans, hooks of enqueues and hooks of attempts that ended."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal, TypeVar, overload

from dayjob.errors import BadOption
from dayjob.handlers.signature import Colour, given_name
from dayjob.middleware import EnqueueHook, Lifespan, Middleware, carriers
from dayjob.options import Hook
from dayjob.pool_lifecycle import PoolLifecycle

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class PoolHooks(PoolLifecycle):
    """The part of WorkerPool that registers code to run around its jobs."""

    #: The class of the context that middleware may take.
    context: type[Any]

    def __init__(self) -> None:
        super().__init__()
        #: Wrapped around every job, the first outermost.
        self.middlewares: list[Middleware] = []
        #: Wrapped around the lifetime of the pool in each process, the first outermost.
        self.lifespans: list[Lifespan] = []
        #: Called around every enqueue call.
        self.enqueue_hooks: list[EnqueueHook] = []
        #: Called when an attempt of any job ends: "done", "fail", "dead" or "discard" to functions.
        self.hooks: dict[str, list[Hook]] = {}

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

    def carry(
        self, variable: ContextVar[T], *, name: str | None = None, parse: Callable[[str], T] | None = None
    ) -> None:
        """Let a context variable, such as the ID of a request, travel with every job as a header.

        An enqueue stores the variable's value as text, if it has one other than None; the job runs with the same value.
        `name` is the name of the header, by default that of the variable. `parse` makes the value of the text.
        Raises BadOption, and NotReady once the pool has started.
        """
        send, receive = carriers(variable, name, parse)
        self.middleware(receive)
        self.on_enqueue(send)

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
