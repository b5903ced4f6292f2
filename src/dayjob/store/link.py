"""Link: one connection to the server, for sync code. Turns errors of the client library into StoreErrors.

The retries of the client library are off, because after a lost reply they would send an enqueue twice.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - socket imports it at the first connection; see dayjob.fork_safe
import inspect
import re
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, Connection, SSLConnection
from redis.connection import UnixDomainSocketConnection as _UnixConnection
from redis.crc import key_slot
from redis.retry import Retry

from dayjob.errors import BadOption, Full, Rejected, StoreError, Unavailable
from dayjob.store import fork
from dayjob.store.addresses import Address
from dayjob.store.embedded import RUNTIME
from dayjob.store.op import Arg, Op

T = TypeVar("T")

#: Seconds to wait for a connection, and for the answer to a command that does not block.
ANSWER_SECONDS = 5.0

#: Bytes above which a request counts as large.
LARGE = 1 << 16
#: The slowest connection that a worker supports. Workers resend a request until it is answered, so without extra time for
#: its size, a large request would never get through a slow connection.
SLOWEST_BYTES_PER_SECOND = 1_000_000.0

#: Keeps the client library from sending its name and version on every connection. Newer versions have one option for it.
SILENT: dict[str, Any] = (
    {"driver_info": None}
    if "driver_info" in inspect.signature(AbstractConnection.__init__).parameters
    else {"lib_name": None, "lib_version": None}
)

#: How error replies start that mean a temporary problem.
PASSING = (
    "LOADING", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "UNBLOCKED", "NOREPLICAS", "MISCONF",
    "BUSY", "ERR max number of clients",
)  # fmt: skip
#: Those that mean that the connection leads to the wrong server, or to one that is shutting down.
MISPLACED = ("LOADING", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "MOVED", "ASK", "UNBLOCKED")

#: The client library removes the code from replies that it has an exception class for. This maps the class to the code.
_CODES = {
    "BusyLoadingError": "LOADING", "MasterDownError": "MASTERDOWN", "ReadOnlyError": "READONLY",
    "ClusterDownError": "CLUSTERDOWN", "TryAgainError": "TRYAGAIN", "MovedError": "MOVED", "AskError": "ASK",
    "OutOfMemoryError": "OOM", "NoPermissionError": "NOPERM", "NoScriptError": "NOSCRIPT",
    "AuthenticationError": "NOAUTH",
}  # fmt: skip


def reply_text(error: Exception) -> str:
    """An error reply as the server sent it, starting with its code."""
    code = _CODES.get(type(error).__name__)
    text = str(error)
    if code == "NOAUTH" and text.startswith("invalid"):
        code = "WRONGPASS"
    return text if code is None or text.startswith(code) else f"{code} {text}"


def mapped(error: Exception, *, sent: bool, where: str) -> StoreError:
    """Turn an error of the client library into a StoreError. `sent` means that the server may have got the request."""
    if not isinstance(
        error,
        redis.ResponseError
        | redis.AuthenticationError
        | redis.exceptions.BusyLoadingError
        | redis.ReadOnlyError,
    ):
        text = str(error) or (
            "no answer in time"
            if isinstance(error, TimeoutError | redis.exceptions.TimeoutError)
            else type(error).__name__
        )
        advice = _advice(text, where, dialled=not sent)
        return Unavailable(f"Redis at {where}: {_followed(text, advice)}", sent=sent)
    text = reply_text(error)
    if text.startswith(PASSING):
        return Unavailable(f"Redis at {where} answered: {text}", sent=False)
    if text.startswith("OOM") or "OOM command not allowed" in text:
        return Full(
            f"Redis at {where} is out of memory; nothing was stored. Raise maxmemory or let workers drain it."
        )
    return Rejected(f"Redis at {where} answered: {_followed(text, _advice(text, where, dialled=False))}")


def _followed(text: str, advice: str) -> str:
    sentence = text.rstrip(".")
    return f"{sentence}. {advice}" if advice else sentence


def _advice(text: str, where: str, *, dialled: bool) -> str:
    """Advice for errors that usually come from a mistake in the URL or from a stopped server; else ""."""
    for codes, advice in _ADVICE:
        if any(code in text for code in codes):
            return advice
    if where.startswith(f"unix://{RUNTIME}/dayjob-") and any(sign in text for sign in _CUT):
        return (
            "This embedded server seems to be stopped: `dayjob server start`, in its folder, starts it again."
        )
    if not dialled:
        return ""
    if where.startswith("rediss") and "CERTIFICATE_VERIFY_FAILED" in text:
        return "Name the authority that signed its certificate: rediss://...?ssl_ca_certs=/path/to/ca.pem"
    if where.startswith("rediss") and ("SSL" in text or "Timeout" in text or "reset" in text):
        return "If that port does not speak TLS, write redis:// instead of rediss://."
    if where.startswith("redis:") and ("reset by peer" in text or "closed by server" in text):
        return "If that port speaks TLS, write rediss:// instead of redis://."
    return ""


#: What the client library's messages contain when no server is listening, or the server closed the connection.
_CUT = ("connecting to", "Broken pipe", "closed by server", "reset by peer")

#: Words in an error reply, and what to do about it.
_ADVICE = (
    (("WRONGPASS",), "The user or the password in the URL is wrong; in them write / as %2F, ? as %3F, # as %23, @ as %40."),
    (("NOAUTH",), "It wants a password: write redis://:PASSWORD@host:port/0 or redis://USER:PASSWORD@host:port/0."),
    (("DB index is out of range",), "The number that ends the URL is the database; most servers have 0 to 15."),
)  # fmt: skip


def is_noscript(error: Exception) -> bool:
    """Whether the server does not know the script."""
    return reply_text(error).startswith("NOSCRIPT")


def misplaced(error: Exception) -> bool:
    """Whether the client must locate the server again."""
    return reply_text(error).startswith(MISPLACED)


def connection_options(address: Address, timeout: float, name: str) -> dict[str, Any]:
    """The options of sync and async connections."""
    return {
        "db": address.db,
        "username": address.username,
        "password": address.password,
        "socket_timeout": timeout,
        "socket_connect_timeout": min(ANSWER_SECONDS, timeout),
        "protocol": 2,
        "client_name": name,
        **SILENT,
        **tls_options(address),
    }


def tls_options(address: Address) -> dict[str, Any]:
    """The TLS options of a URL, for sync and async connections."""
    if not address.tls:
        return {}
    options = {key: value for key, value in address.options.items() if key.startswith("ssl_")}
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = str(options["ssl_check_hostname"]).lower() in ("1", "true", "yes")
    return options


def keepalive() -> dict[int, int]:
    """TCP options that detect a lost peer within about half a minute."""
    wanted = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 20_000))
    return {getattr(socket, option): value for option, value in wanted if hasattr(socket, option)}


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
        """End a blocking run in another thread by shutting down its socket."""
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
            extra = size / self._slowest if size > LARGE else 0.0
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
                return found
            problems.append(f"{host}:{port}: does not know it")
        what = f"master {address.service!r}" if address.kind == "sentinel" else "the node of this namespace"
        raise redis.ConnectionError(f"cannot locate {what} ({'; '.join(problems)})")

    def _ask_sentinel(self, host: str, port: int) -> tuple[str, int] | None:
        options = {key: str(value) for key, value in self._address.options.items()}
        reply = self._ask_once(
            host, port, options.get("sentinel_username"), options.get("sentinel_password"),
            "SENTINEL", "get-master-addr-by-name", self._address.service or "",
        )  # fmt: skip
        return None if reply is None else (reply[0].decode(), int(reply[1]))

    def _ask_node(self, host: str, port: int) -> tuple[str, int] | None:
        slot = key_slot(self._tag.encode())
        reply = self._ask_once(host, port, self._address.username, self._address.password, "CLUSTER", "SLOTS")
        for first, last, node, *_ in reply:
            if first <= slot <= last:
                return ((node[0] or b"").decode() or host, int(node[1]))
        return None

    def _ask_once(self, host: str, port: int, username: str | None, password: str | None, *words: str) -> Any:
        kind = SSLConnection if self._address.tls else Connection
        connection: Any = kind(
            host=host, port=port, username=username, password=password, socket_timeout=1.0, socket_connect_timeout=1.0,
            protocol=2, **SILENT, retry=Retry(NoBackoff(), 0), **tls_options(self._address),
        )  # fmt: skip
        try:
            connection.connect()
            connection.send_command(*words, check_health=False)
            return connection.read_response()
        finally:
            connection.disconnect()
