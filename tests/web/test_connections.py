"""Connections of slow clients: closed in time, without harm to the others."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from dayjob.admin.client import AsyncAdmin
from dayjob.web import connections, create_app
from dayjob.web.server import configure
from web.conftest import serving

HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/v1/queue/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def port(redis_url, namespace, monkeypatch):
    """The port of a console that waits for a request for a moment only."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 4.0)
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 5.0)
    app = create_app(AsyncAdmin(namespace, redis=redis_url))
    with serving(app, config=configure(app)) as (url, _):
        yield int(url.rpartition(":")[2])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def read_all(one: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = b""
    while data := one.recv(65_536):
        found += data
    return found


def read_until(one: socket.socket, wanted: bytes) -> None:
    """Read until `wanted` has come."""
    found = b""
    while wanted not in found:
        data = one.recv(65_536)
        assert data, found
        found += data


@pytest.mark.parametrize("sent", [b"", b"G", HALF], ids=["nothing", "a byte", "half"])
def test_a_client_that_does_not_send_the_head_of_a_request_is_closed(port, sent):
    with connect(port) as one:
        one.sendall(sent)
        assert read_all(one) == b""


def test_a_client_that_sends_half_of_its_second_request_is_closed(port):
    with connect(port) as one:
        one.sendall(HALF + b"\r\n")
        read_until(one, b"ok\n")
        one.sendall(HALF)
        assert read_all(one) == b""


def test_a_client_that_does_not_send_the_body_of_a_request_is_closed(port, caplog):
    with connect(port) as one:
        one.sendall(POST + b"Content-Length: 99\r\n\r\n{")
        assert read_all(one) == b""
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_request_that_takes_long_to_answer_is_not_closed(port):
    with connect(port) as stream, connect(port) as slow:
        stream.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read_until(stream, b"retry: 3000")
        slow.sendall(HALF)
        assert read_all(slow) == b""
        stream.setblocking(False)
        with pytest.raises(BlockingIOError):
            while stream.recv(65_536):
                pass


def test_a_connection_that_is_being_answered_is_not_closed_to_make_room(port, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 60)
    with connect(port) as stream, connect(port) as oldest:
        stream.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read_until(stream, b"retry: 3000")
        monkeypatch.setattr(connections, "max_connections", lambda: 2)
        with connect(port) as newest:
            try:
                closed = read_all(oldest)
            except ConnectionResetError:
                closed = b""
            newest.sendall(HALF + b"\r\n")
            assert newest.recv(65_536).startswith(b"HTTP/1.1 200")
        stream.setblocking(False)
        with pytest.raises(BlockingIOError):
            while stream.recv(65_536):
                pass
    assert closed == b""


class FakeTransport:
    def __init__(self, *, closing: bool = False) -> None:
        self.closing = closing

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


def make(
    known: set[connections.BoundedProtocol], loop: asyncio.AbstractEventLoop, *, closing: bool = False
) -> connections.BoundedProtocol:
    """A connection that waits for a request."""
    one = connections.BoundedProtocol.__new__(connections.BoundedProtocol)
    one.cycle, one.connections, one.loop = None, known, loop
    one.transport = FakeTransport(closing=closing)
    one._start_timer()
    known.add(one)
    return one


@pytest.fixture
def loop():
    with contextlib.closing(asyncio.new_event_loop()) as found:
        yield found


def test_a_connection_that_is_about_to_end_takes_no_room(monkeypatch, loop):
    """It is forgotten in a later step of the event loop. Until then another client's would be closed in its place."""
    monkeypatch.setattr(connections, "max_connections", lambda: 1)
    known: set[connections.BoundedProtocol] = set()
    make(known, loop, closing=True)
    one = make(known, loop)
    one._make_room()
    assert not one.transport.is_closing()


def test_of_connections_that_were_accepted_in_one_step_the_first_is_closed_to_make_room(monkeypatch, loop):
    """The clock of a fast event loop stands still within a step."""
    monkeypatch.setattr(loop, "time", lambda: 1.0)
    monkeypatch.setattr(connections, "max_connections", lambda: 7)
    known: set[connections.BoundedProtocol] = set()
    made = [make(known, loop) for _ in range(8)]
    made[-1]._make_room()
    assert [one.transport.is_closing() for one in made] == [True] + 7 * [False]
