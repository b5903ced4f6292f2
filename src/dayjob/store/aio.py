"""AsyncLink: one connection to the server, for an event loop. The twin of sync.Link, over the same ops."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, TypeVar

import redis
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from dayjob.settings import Address
from dayjob.store.op import Op
from dayjob.store.sync import (
    ANSWER,
    Link,
    check_tag,
    connection_options,
    is_noscript,
    keepalive,
    mapped,
    misplaced,
)

T = TypeVar("T")


class AsyncLink:
    """One connection, opened at first use and again after any fault or in another loop. Not for two tasks at once."""

    def __init__(self, address: Address, *, tag: str, name: str = "dayjob", timeout: float = ANSWER) -> None:
        check_tag(address, tag)
        self._address = address
        self._tag = tag
        self._name = name
        self._timeout = timeout
        self._connection: Any = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None

    async def run(self, op: Op[T]) -> T:
        """Send one op and read its answer. Raises StoreError; the connection is then as good as new."""
        return op.read(await self._ask(op))

    async def run_many(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """Run several ops one after the other."""
        return [await self.run(op) for op in ops]

    async def close(self) -> None:
        """Close the connection; the next run opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _ask(self, op: Op[Any]) -> Any:
        connection = await self._open()
        for whole_script in (False, True):
            try:
                await connection.send_command(*op.words(whole_script=whole_script), check_health=False)
                return await connection.read_response()
            except redis.ResponseError as error:
                if is_noscript(error) and not whole_script:
                    continue
                if misplaced(error):
                    await self.close()
                raise mapped(error, sent=False, where=str(self._address)) from error
            except BaseException as error:
                # Cancelled or cut in mid-answer: the rest would be taken for the next one's.
                self._abandon()
                if isinstance(error, redis.RedisError | OSError):
                    raise mapped(error, sent=True, where=str(self._address)) from error
                raise
        raise AssertionError("a whole script cannot be unknown")

    def _abandon(self) -> None:
        connection, self._connection = self._connection, None
        writer = getattr(connection, "_writer", None)
        if writer is not None:
            writer.close()

    async def _open(self) -> Any:
        home = (os.getpid(), asyncio.get_running_loop())
        if self._home != home:
            # Another loop or a forked child cannot use that socket, nor close it.
            self._connection, self._home = None, home
        if self._connection is None:
            try:
                self._connection = await self._dial()
            except (redis.RedisError, OSError) as error:
                raise mapped(error, sent=False, where=str(self._address)) from error
        return self._connection

    async def _dial(self) -> Any:
        address = self._address
        options = connection_options(address, self._timeout, self._name)
        options["retry"] = Retry(NoBackoff(), 0)
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
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection
