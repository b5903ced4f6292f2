"""Link: one connection to the server, for sync code; and `walk`, which runs steps over it.

The retries of the client library are off, because after a lost reply they would send an enqueue twice.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - socket imports it at the first connection; see dayjob.fork_safe
import re
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.connection import UnixDomainSocketConnection as _UnixConnection
from redis.crc import key_slot
from redis.retry import Retry

from dayjob.errors import BadOption, StoreError, Unavailable
from dayjob.middleware import FindServer, ServerAddress
from dayjob.store import fork
from dayjob.store.connection_options import ANSWER_SECONDS, SILENT, connection_options, keepalive, tls_options
from dayjob.store.credentials import login
from dayjob.store.link_errors import is_noscript, mapped, misplaced
from dayjob.store.op import Arg, Op
from dayjob.store.steps import Runs, Steps
from dayjob.store.urls import Address, parse_url

T = TypeVar("T")

#: Bytes above which a request counts as large.
LARGE_BYTES = 1 << 16
#: The slowest connection that a worker supports. Workers resend a request until it is answered, so without extra time for
#: its size, a large request would never get through a slow connection.
SLOWEST_BYTES_PER_SECOND = 1_000_000.0


def has_news(number: int) -> bool:
    """Whether a socket has something to read. If no request is open, this means that the server closed it."""
    if number < 0:
        return True
    if not hasattr(select, "poll"):
        # Windows has no poll, but its select accepts any socket number.
        return bool(select.select([number], [], [], 0)[0])
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


def words(op: Op[Any], *, whole_script: bool = False) -> tuple[Arg, ...]:
    """An op as it is sent: a script by its digest, or with its source if the server does not have it cached."""
    script = op.command
    if isinstance(script, str):
        return (script, *op.keys, *op.args)
    if whole_script:
        return ("EVAL", script.source, len(op.keys), *op.keys, *op.args)
    return ("EVALSHA", script.sha, len(op.keys), *op.keys, *op.args)


def _packer() -> Callable[[tuple[Arg, ...]], bytes] | None:
    """The C function that encodes commands, if hiredis is installed; None to let the client library do it."""
    try:
        import hiredis  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    packed: Callable[[Any], bytes] = hiredis.pack_command
    return packed


#: Encodes one command. The client library's own function is slow for a thousand arguments.
pack = _packer()


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        return error


class Watch(Protocol):
    """Is notified when requests on a link fail and succeed. Several links may share one."""

    #: Monotonic time of the last failure: connections opened before it are suspect.
    failed_at: float

    def failed(self, error: StoreError) -> None: ...
    def succeeded(self) -> None: ...


def check_tag(address: Address, tag: str) -> None:
    """Refuse a namespace whose keys would be on several nodes of a cluster. Raises BadOption."""
    if address.kind == "cluster" and not re.search(r"\{[^}]+\}", tag):
        namespace = tag.rpartition("known_jobs")[0].rstrip(":")
        raise BadOption(
            f"namespace {namespace!r} on a cluster: write '{{{namespace}}}', so that all its keys are on one node"
        )


#: Where the last connection of this process went, by what it was asked for: several hosts are one server.
_located: dict[tuple[Any, ...], tuple[str, int]] = {}


def _group(address: Address, tag: str) -> tuple[Any, ...]:
    """What determines the server behind several hosts."""
    if address.kind == "sentinel":
        return address.hosts, address.service
    return address.hosts, key_slot(tag.encode())


def server_finder(url: str, tag: str) -> FindServer:
    """A function that returns where the server is. None: it is embedded, or no connection has yet found it by sentinels or nodes."""
    if url.startswith("embedded:"):
        return lambda: None
    address = parse_url(url)
    if address.kind in ("sentinel", "cluster"):
        group = _group(address, tag)
        return lambda: ServerAddress(*_located[group]) if group in _located else None
    fixed = (
        ServerAddress(str(address.path), None) if address.kind == "unix" else ServerAddress(*address.hosts[0])
    )
    return lambda: fixed


def walk(link: Runs, steps: Steps[T]) -> T:
    """Run the steps over a link and return their result. Raises a StoreError that the steps do not catch."""
    try:
        request = next(steps)
        while True:
            try:
                if isinstance(request, Op):
                    answer = link.run(request)
                else:
                    answer = link.run_many(request) if isinstance(request, list) else request.run(link)
            except StoreError as error:
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


class Link:
    """One connection, opened at first use and again after an error. Only one thread may use it at a time."""

    def __init__(
        self,
        address: Address,
        *,
        tag: str,
        name: str = "dayjob",
        timeout: float = ANSWER_SECONDS,
        watch: Watch | None = None,
        slowest: float | None = None,
    ) -> None:
        check_tag(address, tag)
        self._address = address
        self._watch = watch
        self._opened_at = 0.0
        #: The connection that is being opened; kept for interrupt().
        self._dialled: Any = None
        self._retired = False
        #: Whether this program ended a run itself, which is no outage of Redis.
        self._interrupted = False
        #: Any key of the namespace: in a cluster it determines the node.
        self._tag = tag
        self._name = name
        self._timeout = timeout
        #: Bytes per second from which the extra time of a large request is computed; None for no extra time.
        self._slowest = slowest
        #: The extra seconds that the socket's timeout now includes.
        self._extra = 0.0
        #: Any: the client library's connections are not typed.
        self._connection: Any = None
        #: Whether a request was sent whose answer was not read. The next read would return that answer.
        self._unanswered = False
        self._forks = fork.number

    def run(self, op: Op[T]) -> T:
        """Send one op and read its answer. Raises StoreError; the link can then be used again."""
        if self._watch is None:
            return op.read(self._ask(op))
        try:
            reply = self._ask(op)
        except Unavailable as error:
            if not self._interrupted:
                self._watch.failed(error)
            raise
        if op.writes:
            self._watch.succeeded()
        return op.read(reply)

    def run_many(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """Send several ops in one round trip. Raises the first StoreError; the server may have executed the others."""
        connection = self._open()
        with self._asking():
            self._send(connection, connection.pack_commands([words(op) for op in ops]))
            replies = [_answer(connection) for _ in ops]
        for i, reply in enumerate(replies):
            if isinstance(reply, redis.ResponseError):
                replies[i] = self._ask(ops[i]) if is_noscript(reply) else self._refuse(reply)
        return [op.read(reply) for op, reply in zip(ops, replies, strict=True)]

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Close the connection if it is left before all answers are read. Raises StoreError for errors of the client."""
        self._unanswered = True
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, redis.RedisError | OSError):
                raise mapped(error, sent=True, where=str(self._address)) from error
            raise
        self._unanswered = False

    def run_confirmed(self, op: Op[T], proof: Op[int], patience: float) -> tuple[T, int | StoreError]:
        """Send an op and, in the same round trip, a command that waits up to `patience` seconds for what it wrote.

        Raises StoreError for the op. An error of the proof is returned, because the op has been executed then.
        """
        connection = self._open()
        with self._asking():
            first, second = self._ask_both(connection, op, proof, patience, whole_script=False)
            if isinstance(first, redis.ResponseError) and is_noscript(first):
                # The op was not executed, so the first proof was about an earlier write.
                first, second = self._ask_both(connection, op, proof, patience, whole_script=True)
        if isinstance(first, redis.ResponseError):
            self._refuse(first)
        if not isinstance(second, redis.ResponseError):
            return op.read(first), proof.read(second)
        if misplaced(second):
            self.close()
        return op.read(first), mapped(second, sent=True, where=str(self._address))

    def _ask_both(
        self, connection: Any, op: Op[Any], proof: Op[Any], patience: float, *, whole_script: bool
    ) -> tuple[Any, Any]:
        """Both answers. An error reply is returned, not raised."""
        both = [words(op, whole_script=whole_script), words(proof)]
        connection.send_packed_command(connection.pack_commands(both), check_health=False)
        first = _answer(connection)
        connection._sock.settimeout(patience + self._timeout)
        second = _answer(connection)
        connection._sock.settimeout(self._timeout)
        return first, second

    def close(self) -> None:
        """Close the connection. The next run opens a new one."""
        connection, self._connection = self._connection, None
        self._extra = 0.0
        if connection is not None:
            connection.disconnect()

    def freshen(self) -> None:
        """Drop a connection that the server closed while it was idle. The next run opens a new one."""
        sock = getattr(self._connection, "_sock", None)
        if sock is not None and self._forks == fork.number and has_news(sock.fileno()):
            self.close()

    def interrupt(self) -> None:
        """End a blocking run in another thread by shutting down its socket. For links of a pool that stops."""
        self._interrupted = True
        for connection in (self._connection, self._dialled):
            sock = getattr(connection, "_sock", None)
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def hasten(self, seconds: float) -> None:
        """Change the timeout for answers to this many seconds, from now on."""
        self._timeout = seconds
        sock = getattr(self._connection, "_sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.settimeout(seconds)

    def retire(self) -> None:
        """End a run in another thread, and refuse to connect again."""
        self._retired = True
        self.interrupt()

    @property
    def connected(self) -> bool:
        """Whether a connection is open."""
        return self._connection is not None

    def _ask(self, op: Op[Any]) -> Any:
        connection = self._open()
        self._unanswered = True
        for whole_script in (False, True):
            command = words(op, whole_script=whole_script)
            try:
                self._send(
                    connection, connection.pack_command(*command) if pack is None else (pack(command),)
                )
                reply = connection.read_response()
            except redis.ResponseError as error:
                if is_noscript(error) and not whole_script:
                    continue
                self._unanswered = False
                return self._refuse(error)
            except BaseException as error:
                # The rest of a half-read answer would be taken for the next one, so close the connection.
                self.close()
                if isinstance(error, redis.RedisError | OSError):
                    raise mapped(error, sent=True, where=str(self._address)) from error
                raise
            self._unanswered = False
            return reply
        raise AssertionError("the server cannot lack a script that was sent with its source")

    def _send(self, connection: Any, data: Sequence[bytes]) -> None:
        """Send an encoded request. A large one gets more time to be sent and answered."""
        if self._slowest is not None:
            size = sum(map(len, data))
            extra = size / self._slowest if size > LARGE_BYTES else 0.0
            if extra or self._extra:
                self._extra = extra
                connection._sock.settimeout(self._timeout + extra)
        connection.send_packed_command(data, check_health=False)

    def _refuse(self, error: Exception) -> Any:
        if misplaced(error):
            self.close()
        raise mapped(error, sent=False, where=str(self._address)) from error

    def _open(self) -> Any:
        if self._forks != fork.number:
            # After a fork the socket belongs to the parent, so it must not be closed.
            self._connection, self._forks = None, fork.number
        if self._retired:
            self._refuse_retired()
        if self._unanswered:
            # The thread that sent the request was interrupted, perhaps while it closed the connection.
            self.close()
            self._unanswered = False
        if (
            self._connection is not None
            and self._watch is not None
            and self._opened_at < self._watch.failed_at
        ):
            # The failure of another connection may have broken this one too, without a sign of it.
            self.close()
        if self._connection is None:
            try:
                self._connection = self._dial()
                self._opened_at = time.monotonic()
            except (redis.RedisError, OSError) as error:
                raise mapped(error, sent=False, where=str(self._address)) from error
            # retire() may have been called while the connection was being opened.
            if self._retired:
                self._refuse_retired()
        return self._connection

    def _refuse_retired(self) -> NoReturn:
        self.close()
        raise Unavailable("this connection was closed and may not be opened again")

    def _dial(self) -> Any:
        address = self._address
        options = connection_options(address, self._timeout, self._name)
        options["retry"] = Retry(NoBackoff(), 0)
        connection: Any
        unix: Any = _UnixConnection
        if address.kind == "unix":
            connection = unix(path=address.path, **options)
        else:
            host, port = self.locate()
            kind = SSLConnection if address.tls else Connection
            connection = kind(
                host=host, port=port, socket_keepalive=True, socket_keepalive_options=keepalive(), **options
            )
        self._dialled = connection
        try:
            connection.connect()
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self._dialled = None
        return connection

    def locate(self) -> tuple[str, int]:
        """Host and port of the server to connect to. Asks the sentinels or cluster nodes if there are any."""
        address = self._address
        if address.kind == "single":
            return address.hosts[0]
        problems: list[str] = []
        for host, port in address.hosts:
            try:
                found = (
                    self._ask_sentinel(host, port)
                    if address.kind == "sentinel"
                    else self._ask_node(host, port)
                )
            except (redis.RedisError, OSError) as error:
                problems.append(f"{host}:{port}: {error}")
                continue
            if found is not None:
                _located[_group(address, self._tag)] = found
                return found
            problems.append(f"{host}:{port}: does not know it")
        what = f"master {address.service!r}" if address.kind == "sentinel" else "the node of this namespace"
        raise redis.ConnectionError(f"cannot locate {what} ({'; '.join(problems)})")

    def _ask_sentinel(self, host: str, port: int) -> tuple[str, int] | None:
        options = {key: str(value) for key, value in self._address.options.items()}
        own = {"username": options.get("sentinel_username"), "password": options.get("sentinel_password")}
        reply = self._ask_once(
            host, port, own, "SENTINEL", "get-master-addr-by-name", self._address.service or ""
        )
        return None if reply is None else (reply[0].decode(), int(reply[1]))

    def _ask_node(self, host: str, port: int) -> tuple[str, int] | None:
        slot = key_slot(self._tag.encode())
        reply = self._ask_once(host, port, login(self._address), "CLUSTER", "SLOTS")
        for first, last, node, *_ in reply:
            if first <= slot <= last:
                return ((node[0] or b"").decode() or host, int(node[1]))
        return None

    def _ask_once(self, host: str, port: int, own_login: dict[str, Any], *words: str) -> Any:
        kind = SSLConnection if self._address.tls else Connection
        connection: Any = kind(
            host=host, port=port, **own_login, socket_timeout=1.0, socket_connect_timeout=1.0,
            protocol=2, **SILENT, retry=Retry(NoBackoff(), 0), **tls_options(self._address),
        )  # fmt: skip
        try:
            connection.connect()
            connection.send_command(*words, check_health=False)
            return connection.read_response()
        finally:
            connection.disconnect()
