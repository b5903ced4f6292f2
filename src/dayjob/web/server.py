"""Serves the console: the socket, and a shutdown that open streams do not delay."""

from __future__ import annotations

import errno
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette

from dayjob.errors import UsageError
from dayjob.web import connections

#: Seconds that requests in progress may take to end at a stop.
GRACE_SECONDS = 3


class ConsoleServer(uvicorn.Server):
    """A server that ends the live streams before it waits for requests to end."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as usual, with a longer queue in the kernel for new connections."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(connections.BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then stop as usual."""
        app = self.config.app
        assert isinstance(app, Starlette)  # noqa: S101 - made by `serve`
        app.state.console.end_streams()
        await super().shutdown(sockets)


def is_loopback(host: str) -> bool:
    """Whether a name or address is local to this machine. Raises UsageError if it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host!r} cannot be resolved: {error}") from None
    addresses = [ipaddress.ip_address(str(place[4][0]).partition("%")[0]) for place in found]
    return all(address.is_loopback for address in addresses)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises UsageError with the next step."""
    try:
        place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        found = socket.socket(place[0], socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host!r} cannot be resolved: {error}") from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(place[4])
        found.listen(128)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"port {port} of {host} is in use, perhaps by another console.\n"
                f"    Use another: dayjob web --port {port + 1 if port < 65_535 else 5041}"
            ) from None
        if error.errno == errno.EACCES:
            raise UsageError(
                f"port {port} needs more permissions.\n    Use one above 1023, such as --port 5040"
            ) from None
        raise UsageError(f"cannot listen at {host}, port {port}: {error.strerror or error}") from None
    return found


def address_of(host: str, port: int, base_path: str = "") -> str:
    """What to open in a browser."""
    shown = "127.0.0.1" if host in ("0.0.0.0", "") else "::1" if host == "::" else host  # noqa: S104 - a comparison
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}{quote(base_path)}/"


def configure(
    app: Starlette, *, forwarded_allow_ips: Sequence[str] = (), grace: int = GRACE_SECONDS
) -> uvicorn.Config:
    """The server's configuration. X-Forwarded-For is trusted only from proxies at these addresses."""
    return uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=grace,
        timeout_keep_alive=30, ws="none", http=connections.BoundedProtocol, backlog=connections.ACCEPTED_AT_ONCE,
        proxy_headers=bool(forwarded_allow_ips), forwarded_allow_ips=list(forwarded_allow_ips),
    )  # fmt: skip


def serve(
    app: Starlette,
    listening: socket.socket,
    *,
    ready: Callable[[], None] = lambda: None,
    forwarded_allow_ips: Sequence[str] = (),
) -> None:
    """Serve until INT or TERM, then shut down. A second signal exits at once."""
    server = ConsoleServer(configure(app, forwarded_allow_ips=forwarded_allow_ips))
    # uvicorn raises the signal again when it has stopped; a requested stop is not an error.
    before = _take_signals(server) if threading.current_thread() is threading.main_thread() else {}
    ready()
    try:
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        listening.close()


def _take_signals(server: uvicorn.Server) -> dict[signal.Signals, Any]:
    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a signal handler
        # Installed before uvicorn's own handlers, so that an early Ctrl-C is not lost.
        server.should_exit = True

    return {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
