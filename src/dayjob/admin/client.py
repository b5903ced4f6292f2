"""Admin and AsyncAdmin: everything an operator can see or do, as methods. Both run the same steps.

A call takes an idle connection, or opens one if there is none.
"""

from __future__ import annotations

import functools
import getpass
import inspect
import platform
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, Self, TypeVar

from dayjob.admin import streams
from dayjob.admin.methods import AdminMethods, Method
from dayjob.admin.minute_cache import MinuteCache
from dayjob.admin.redactor import Redactor
from dayjob.admin.session import Session
from dayjob.errors import BadOption
from dayjob.names import check_redis
from dayjob.store import addresses
from dayjob.store.async_link import AsyncLink, awalk
from dayjob.store.connection_options import ANSWER_SECONDS
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.steps import Steps
from dayjob.store.stream_reader import BLOCK_SECONDS, Emitted, StreamReader
from dayjob.store.urls import Address, parse_url

C = TypeVar("C")
T = TypeVar("T")

#: How many idle connections are kept.
MAX_IDLE = 4
#: The connection of a reader of a stream, who blocks on it.
_READING: dict[str, Any] = {"name": "dayjob:stream", "timeout": BLOCK_SECONDS + ANSWER_SECONDS}


def whoami() -> str:
    """The user of this process and the machine, for the audit."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "unknown"
    return f"{user}@{platform.node() or 'unknown'}"


class _AdminBase(AdminMethods):
    """What both share: the namespace, the server, who acts, and what is hidden."""

    def __init__(
        self,
        namespace: str | None = None,
        *,
        redis: str | None = None,
        actor: str | None = None,
        hide: Collection[str] = (),
        show_unannounced: bool | None = None,
    ) -> None:
        self.namespace = addresses.resolve_namespace(namespace)
        self._redis = check_redis(redis)
        keys = Keys(self.namespace)
        if show_unannounced is None:
            show_unannounced = addresses.show_unannounced()
        self._session = Session(keys, actor or whoami(), frozenset(hide), show_unannounced, MinuteCache(keys))
        self._where: list[Address] = []
        self._idle: deque[Any] = deque(maxlen=MAX_IDLE)

    def acting(self, actor: str) -> Self:
        """A copy that acts for another operator. It shares the connections."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._session = replace(self._session, actor=actor)
        return twin

    @property
    def actor(self) -> str:
        """Who acts, as the audit has it."""
        return self._session.actor

    def _address(self) -> Address:
        if not self._where:
            self._where.append(parse_url(addresses.connect_target(addresses.resolve(self._redis))))
        return self._where[0]


def _signed(method: Callable[..., Any], steps: Callable[..., Any]) -> None:
    """Give a method the signature of its steps, without the session."""
    found = inspect.signature(steps)
    _, *rest = found.parameters.values()
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    answer = re.sub(r"^Steps\[(.*)\]$", r"\1", str(found.return_annotation))
    method.__signature__ = inspect.Signature([own, *rest], return_annotation=answer)  # type: ignore[attr-defined]


def _sync(steps: Callable[..., Steps[Any]]) -> Callable[..., Any]:
    @functools.wraps(steps)
    def method(self: Admin, /, *args: Any, **kwargs: Any) -> Any:
        return self._walk(steps(self._session, *args, **kwargs))

    return method


def _async(steps: Callable[..., Steps[Any]]) -> Callable[..., Any]:
    @functools.wraps(steps)
    async def method(self: AsyncAdmin, /, *args: Any, **kwargs: Any) -> Any:
        return await self._walk(steps(self._session, *args, **kwargs))

    return method


def _with_methods(make: Callable[..., Callable[..., Any]]) -> Callable[[type[C]], type[C]]:
    """Give a class a function for each method of the table."""

    def decorate(cls: type[C]) -> type[C]:
        for name, one in vars(AdminMethods).items():
            if isinstance(one, Method):
                method = make(one.steps)
                method.__name__ = name
                _signed(method, one.steps)
                setattr(cls, name, method)
        return cls

    return decorate


@_with_methods(_sync)
class Admin(_AdminBase):
    """Everything an operator can see or do. Several threads may share one. Each read is bounded."""

    _idle: deque[Link]

    def _walk(self, steps: Steps[T]) -> T:
        try:
            link = self._idle.pop()
        except IndexError:
            link = Link(self._address(), tag=self._session.keys.known_jobs, name="dayjob:admin")
        try:
            link.freshen()
            return walk(link, steps)
        except KeyboardInterrupt:
            # The answer may be read in part. The next call must not read the rest.
            link.close()
            raise
        except UnicodeEncodeError as error:
            raise _half_character(error) from None
        finally:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(link)
            else:
                link.close()

    def stream(self, job_id: str, *, after: str = "") -> Iterator[Emitted]:
        """Yield the values that a job emits, without secrets, until it has ended.

        `after` is the `id` of a value to continue after.

        Uses a connection of its own. Raises JobFailed, BadOption, StoreError.
        """
        reader, redactor = streams.new_reader(self._session, job_id, after)
        link = Link(self._address(), tag=self._session.keys.known_jobs, **_READING)
        try:
            while not reader.ended:
                yield from walk(link, streams.follow(reader, redactor))
        finally:
            link.close()

    def close(self) -> None:
        """Close the idle connections. The next call opens a new one."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _half_character(error: UnicodeEncodeError) -> BadOption:
    """The error for an id or a name that Redis cannot carry. It is raised before anything is sent."""
    return BadOption(
        f"{error.object[:200]!r} has half a character (a lone surrogate): nothing has such a name"
    )


class JobStream:
    """The stream of a job, read step by step on a connection of its own."""

    def __init__(self, link: AsyncLink, reader: StreamReader, redactor: Redactor) -> None:
        self._link = link
        self._reader = reader
        self._redactor = redactor

    async def read(self) -> list[Emitted]:
        """The next values; none if there are none within two seconds. Raises JobFailed, StoreError."""
        return await awalk(self._link, streams.follow(self._reader, self._redactor))

    @property
    def ended(self) -> bool:
        """Whether the job has ended and everything was read."""
        return self._reader.ended

    @property
    def failed(self) -> bool:
        """Whether the next read raises JobFailed."""
        return self._reader.failed

    @property
    def missing(self) -> bool:
        """Whether nothing is known of the job."""
        return self._reader.missing

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()


@_with_methods(_async)
class AsyncAdmin(_AdminBase):
    """The methods of Admin as coroutines. Tasks may share one."""

    _idle: deque[AsyncLink]

    async def _walk(self, steps: Steps[T]) -> T:
        try:
            link = self._idle.pop()
        except IndexError:
            link = AsyncLink(self._address(), tag=self._session.keys.known_jobs, name="dayjob:admin")
        try:
            await link.freshen()
            return await awalk(link, steps)
        except UnicodeEncodeError as error:
            raise _half_character(error) from None
        finally:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(link)
            else:
                await link.close()

    def open_stream(self, job_id: str, *, after: str = "") -> JobStream:
        """The stream of a job, to read it step by step. Raises BadOption."""
        link = AsyncLink(self._address(), tag=self._session.keys.known_jobs, **_READING)
        return JobStream(link, *streams.new_reader(self._session, job_id, after))

    async def stream(self, job_id: str, *, after: str = "") -> AsyncIterator[Emitted]:
        """Yield the values that a job emits, without secrets, until it has ended.

        `after` is the `id` of a value to continue after.

        Uses a connection of its own. Raises JobFailed, BadOption, StoreError.
        """
        opened = self.open_stream(job_id, after=after)
        try:
            while not opened.ended:
                for one in await opened.read():
                    yield one
        finally:
            await opened.close()

    async def close(self) -> None:
        """Close the idle connections. The next call opens a new one."""
        while self._idle:
            await self._idle.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
