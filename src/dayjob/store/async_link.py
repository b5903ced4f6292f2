"""AsyncLink: one connection to the server, for async code; and `awalk`, which runs steps over it.

The counterpart of `link.py`, with the same ops.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import redis
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from dayjob.errors import StoreError
from dayjob.store.connection_options import ANSWER_SECONDS, connection_options, keepalive
from dayjob.store.link import Link, check_tag, has_news, pack, words
from dayjob.store.link_errors import is_noscript, mapped, misplaced
from dayjob.store.op import Arg, Op
from dayjob.store.steps import AsyncRuns, Steps
from dayjob.store.urls import Address

T = TypeVar("T")


async def send(connection: Any, command: tuple[Arg, ...]) -> None:
    """Send one command."""
    if pack is None:
        await connection.send_command(*command, check_health=False)
    else:
        await connection.send_packed_command((pack(command),), check_health=False)


async def _answer(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except redis.ResponseError as error:
        return error


class _LoopGuard:
    """Closes the connections of one event loop when that loop shuts down, as `asyncio.run` does at its end."""

    def __init__(self) -> None:
        self.connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._generator = self._wait_for_shutdown()
        # Running the generator's first step registers it with the loop, which closes it at shutdown.
        with suppress(StopIteration):
            self._generator.__anext__().send(None)

    async def _wait_for_shutdown(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            _guards.pop(asyncio.get_running_loop(), None)
            for connection in list(self.connections):
                if connection._writer is not None:
                    # Keep a reference, because a writer that is collected before its transport is closed warns.
                    writer = _take_writer(connection)
                    writer.transport.abort()
            await asyncio.sleep(0)  # the loop closes the sockets in its next iteration


#: The guard of each event loop that has connections.
_guards: dict[asyncio.AbstractEventLoop, _LoopGuard] = {}


def _guard() -> _LoopGuard:
    """The guard of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _guards.get(loop)
    if found is None:
        for other in list(_guards):
            if other.is_closed():
                _guards.pop(other, None)
        found = _guards[loop] = _LoopGuard()
    return found


def _take_writer(connection: Any) -> Any:
    """Remove and return the writer of a connection, which then counts as closed."""
    writer, connection._writer, connection._reader = connection._writer, None, None
    return writer


def _close_socket(writer: Any) -> None:
    """Close the socket of a writer whose event loop is closed, because the transport can no longer do it."""
    # uvloop gives no socket here; it closes all of its sockets when it is closed.
    found = getattr(writer.get_extra_info("socket"), "_sock", None)
    if found is not None:
        found.close()


async def awalk(link: AsyncRuns, steps: Steps[T]) -> T:
    """Like `walk`, over an async link."""
    try:
        request = next(steps)
        while True:
            try:
                if isinstance(request, Op):
                    answer = await link.run(request)
                else:
                    answer = await (
                        link.run_many(request) if isinstance(request, list) else request.arun(link)
                    )
            except StoreError as error:
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


class AsyncLink:
    """One connection, opened at first use, and again after an error or in another event loop.

    Only one task may use it at a time.
    """

    def __init__(
        self, address: Address, *, tag: str, name: str = "dayjob", timeout: float = ANSWER_SECONDS
    ) -> None:
        self._connection: Any = None
        check_tag(address, tag)
        self._address = address
        self._tag = tag
        self._name = name
        self._timeout = timeout
        #: The process and the event loop that the connection belongs to. A weak reference must not keep the loop alive.
        self._pid = 0
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    async def run(self, op: Op[T]) -> T:
        """Send one op and read its answer. Raises StoreError; the link can then be used again."""
        return op.read(await self._ask(op))

    async def run_many(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """Send several ops in one round trip. Raises the first StoreError; the server may have executed the others."""
        replies = await self._ask_many(ops)
        for i, reply in enumerate(replies):
            if isinstance(reply, redis.ResponseError):
                replies[i] = await self._ask(ops[i]) if is_noscript(reply) else await self._refuse(reply)
        return [op.read(reply) for op, reply in zip(ops, replies, strict=True)]

    async def _ask_many(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """The answers. An error reply is returned, not raised."""
        connection = await self._open()
        packed = connection.pack_commands([words(op) for op in ops])
        replies: list[Any] = []
        try:
            async with asyncio.timeout(self._timeout):
                await connection.send_packed_command(packed, check_health=False)
                for _ in ops:
                    try:
                        replies.append(await connection.read_response())
                    except redis.ResponseError as error:
                        replies.append(error)
        except BaseException as error:
            self._cut(error)
            raise
        return replies

    async def run_confirmed(self, op: Op[T], proof: Op[int], patience: float) -> tuple[T, int | StoreError]:
        """Send an op and, in the same round trip, a command that waits up to `patience` seconds for what it wrote.

        Raises StoreError for the op. An error of the proof is returned, because the op has been executed then.
        """
        connection = await self._open()
        try:
            first, second = await self._ask_both(connection, op, proof, patience, whole_script=False)
            if isinstance(first, redis.ResponseError) and is_noscript(first):
                # The op was not executed, so the first proof was about an earlier write.
                first, second = await self._ask_both(connection, op, proof, patience, whole_script=True)
        except BaseException as error:
            self._cut(error)
            raise
        if isinstance(first, redis.ResponseError):
            await self._refuse(first)
        if not isinstance(second, redis.ResponseError):
            return op.read(first), proof.read(second)
        if misplaced(second):
            await self.close()
        return op.read(first), mapped(second, sent=True, where=str(self._address))

    async def _ask_both(
        self, connection: Any, op: Op[Any], proof: Op[Any], patience: float, *, whole_script: bool
    ) -> tuple[Any, Any]:
        """Both answers. An error reply is returned, not raised."""
        both = [words(op, whole_script=whole_script), words(proof)]
        async with asyncio.timeout(self._timeout):
            await connection.send_packed_command(connection.pack_commands(both), check_health=False)
            first = await _answer(connection)
        async with asyncio.timeout(patience + self._timeout):
            return first, await _answer(connection)

    async def close(self) -> None:
        """Close the connection. The next run opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            writer = getattr(connection, "_writer", None)
            await connection.disconnect(nowait=True)
            if writer is not None:
                # A TLS close waits for the server's reply, and leaves the socket open if the loop ends before that.
                writer.transport.abort()

    async def freshen(self) -> None:
        """Drop a connection that the server closed while it was idle. The next run opens a new one."""
        if self._connection is None or not self._at_home():
            return
        writer = self._connection._writer
        if writer is None or writer.is_closing() or has_news(writer.get_extra_info("socket").fileno()):
            await self.close()

    async def _ask(self, op: Op[Any]) -> Any:
        connection = await self._open()
        for whole_script in (False, True):
            try:
                # One timeout for sending and reading; the client library's own would create a task for each request.
                async with asyncio.timeout(self._timeout):
                    await send(connection, words(op, whole_script=whole_script))
                    return await connection.read_response()
            except redis.ResponseError as error:
                if is_noscript(error) and not whole_script:
                    continue
                return await self._refuse(error)
            except BaseException as error:
                self._cut(error)
                raise
        raise AssertionError("the server cannot lack a script that was sent with its source")

    async def _refuse(self, error: Exception) -> Any:
        if misplaced(error):
            await self.close()
        raise mapped(error, sent=False, where=str(self._address)) from error

    def _cut(self, error: BaseException) -> None:
        """Drop the connection after a request that was cancelled or failed. Raises StoreError for errors of Redis.

        The rest of a half-read answer would be taken for the next one.
        """
        self._abandon()
        if isinstance(error, TimeoutError):
            error = redis.TimeoutError(f"no answer within {self._timeout:g} s")
        if isinstance(error, redis.RedisError | OSError):
            raise mapped(error, sent=True, where=str(self._address)) from error

    def _abandon(self) -> None:
        connection, self._connection = self._connection, None
        writer = getattr(connection, "_writer", None)
        if writer is not None:
            writer.close()

    async def _open(self) -> Any:
        if not self._at_home():
            self.drop()
            self._pid, self._loop = os.getpid(), weakref.ref(asyncio.get_running_loop())
        if self._connection is None or self._connection._writer is None:
            try:
                self._connection = await self._dial()
            except (redis.RedisError, OSError) as error:
                raise mapped(error, sent=False, where=str(self._address)) from error
            _guard().connections.add(self._connection)
        return self._connection

    def _at_home(self) -> bool:
        """Whether the connection belongs to this process and to the running event loop."""
        loop = None if self._loop is None else self._loop()
        return self._pid == os.getpid() and loop is asyncio.get_running_loop()

    def drop(self) -> None:
        """Close the connection from outside its event loop."""
        connection, self._connection = self._connection, None
        if getattr(connection, "_writer", None) is None or self._pid != os.getpid():
            return  # in a forked child the socket belongs to the parent
        writer = _take_writer(connection)
        loop = None if self._loop is None else self._loop()
        if loop is None or loop.is_closed():
            _close_socket(writer)
        else:
            loop.call_soon_threadsafe(writer.close)

    def __del__(self) -> None:
        # An enqueuer that was created for one call may be collected before its event loop shuts down.
        if self._connection is not None:
            self.drop()

    async def _dial(self) -> Any:
        address = self._address
        options = connection_options(address, self._timeout, self._name)
        options["retry"] = Retry(NoBackoff(), 0)
        options["socket_timeout"] = None
        if address.kind == "unix":
            connection: Any = UnixDomainSocketConnection(path=address.path or "", **options)
        else:
            host, port = address.hosts[0]
            if address.kind != "single":
                finder = Link(address, tag=self._tag)
                host, port = await asyncio.to_thread(finder.locate)
            kind = SSLConnection if address.tls else Connection
            connection = kind(
                host=host, port=port, socket_keepalive=True, socket_keepalive_options=keepalive(), **options
            )
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection
