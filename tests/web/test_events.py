"""The live stream: one reader for all, nothing read when nobody looks, and it never holds up a stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading

import httpx
import pytest

from dayjob.errors import Unavailable
from dayjob.web import events
from dayjob.web.events import Hub
from server import running, wait_until
from web.conftest import running_console


@contextlib.contextmanager
def listening(console):
    """The events of a stream, one after the other: (name, data)."""
    with console.client() as client, client.stream("GET", "/events") as answer:
        assert answer.status_code == 200

        def told():
            name = ""
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield name, json.loads(line.removeprefix("data: "))

        yield answer, told()


def test_a_pulse_comes_at_once_and_again_when_something_changed(console):
    console.admin.enqueue("mail", {})
    with listening(console) as (answer, told):
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["cache-control"] == "no-store"
        name, pulse = next(told)
        assert name == "pulse"
        assert pulse["waiting"] == 1
        assert pulse["queues"][0]["name"] == "mail"
        assert set(pulse["sizes"]) == {"scheduled", "retry", "dead", "done", "broken"}
        assert pulse["verdict"]["level"] == "error"
        console.admin.enqueue("mail", {})
        assert any(pulse["waiting"] == 2 for _, pulse in zip(range(20), (pulse for _, pulse in told)))


def test_a_stream_begins_with_how_long_to_wait_before_coming_back(console):
    with console.client() as client, client.stream("GET", "/events") as answer:
        assert next(answer.iter_lines()) == "retry: 3000"


def test_nobody_looks_and_nothing_is_read(console):
    hub = console.app.state.console.hub
    with listening(console) as (_, told):
        next(told)
        assert hub.reading
    wait_until(lambda: not hub.reading and hub.listeners == 0)


def test_many_who_look_are_one_reader():
    """Counted at the reader: how often it looks does not depend on how many look on."""
    reads = []
    hub = Hub(lambda: count(reads), every=0.02)

    async def count(reads):
        reads.append(1)
        return {"n": len(reads)}

    async def main():
        streams = [hub.listen() for _ in range(50)]
        for stream in streams:
            assert await anext(stream) == events.GREETING
        for _ in range(5):
            await asyncio.gather(*(anext(stream) for stream in streams))
        seen = len(reads)
        for stream in streams:
            await stream.aclose()
        assert not hub.reading
        return seen

    # Each stream took five; had each a reader of its own, there would be 250 reads.
    assert 5 <= asyncio.run(main()) < 250


def test_what_nobody_takes_does_not_pile_up():
    """One who is slow gets the latest when it comes for it, and misses those between."""
    reads = []

    async def read():
        reads.append(1)
        return len(reads)

    async def main():
        hub = Hub(read, every=0.001)
        stream = hub.listen()
        await anext(stream)
        await anext(stream)
        while len(reads) < 50:  # noqa: ASYNC110 - the reader is what is waited for
            await asyncio.sleep(0.001)
        late = await anext(stream)
        await stream.aclose()
        return int(late.rpartition(b"data: ")[2])

    assert asyncio.run(main()) >= 49


def test_a_comment_comes_when_nothing_else_does(monkeypatch):
    monkeypatch.setattr(events, "ALIVE_SECONDS", 0.05)

    async def main():
        hub = Hub(lambda: asyncio.sleep(3600))
        stream = hub.listen()
        assert await anext(stream) == events.GREETING
        assert await anext(stream) == events.COMMENT
        await stream.aclose()

    asyncio.run(main())


def test_a_stream_ends_after_its_time_so_that_who_looks_must_sign_in_again(monkeypatch):
    monkeypatch.setattr(events, "MAX_LIFE_SECONDS", 0.0)

    async def main():
        hub = Hub(lambda: asyncio.sleep(3600))
        return [part async for part in hub.listen()]

    assert asyncio.run(main()) == [events.GREETING]


def test_redis_away_is_told_and_healed_by_itself(tmp_path, namespace):
    with running(tmp_path) as server, running_console(server.url, namespace) as console:
        with listening(console) as (_, told):
            assert next(told)[0] == "pulse"
            server.kill()
            away = next(data for name, data in told if name == "away")
            assert "Redis does not answer" in away["error"]
            server.start()
            assert next(data for name, data in told if name == "pulse")["waiting"] == 0


def test_a_fault_of_the_reader_is_told_and_logged_and_the_stream_goes_on(caplog):
    answers = iter([ZeroDivisionError("secret"), Unavailable("gone"), None])

    async def read():
        problem = next(answers, None)
        if problem is not None:
            raise problem
        return {}

    async def main():
        hub = Hub(read, every=0.001)
        stream = hub.listen()
        found = [await anext(stream)]
        while not found[-1].startswith(b"event: pulse"):
            found.append(await anext(stream))
        await stream.aclose()
        return b"".join(found)

    told = asyncio.run(main())
    assert b"event: away" in told
    assert b"secret" not in told
    assert "ZeroDivisionError" in caplog.text


def test_an_open_stream_does_not_hold_up_a_stop(redis_url, namespace):
    with running_console(redis_url, namespace) as console:
        client = console.client()
        stream = client.stream("GET", "/events")
        answer = stream.__enter__()
        told = answer.iter_lines()
        next(told)
        console.server.should_exit = True
        ended = threading.Event()
        threading.Thread(target=lambda: (list(told), ended.set()), daemon=True).start()
        assert ended.wait(60)
        stream.__exit__(None, None, None)
        client.close()


def test_a_client_that_takes_nothing_is_dropped(redis_url, namespace, monkeypatch):
    monkeypatch.setattr(events, "ACCEPT_SECONDS", 0.2)
    with running_console(redis_url, namespace) as console:
        hub = console.app.state.console.hub
        # Larger than what the kernel and the server keep for one who does not read.
        reads: list[bool] = []
        hub._read = lambda: large(reads)
        hub._every = 0.001
        url = httpx.URL(console.url)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect((url.host, url.port))
            sock.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            # It is read for a listener only. How long there is one is too short to be seen for certain.
            wait_until(lambda: reads and hub.listeners == 0)


async def large(reads):
    reads.append(True)
    return "x" * 1_000_000


def test_no_more_streams_than_the_bound(console, monkeypatch):
    monkeypatch.setattr(events, "MAX_LISTENERS", 1)
    with listening(console) as (_, told):
        next(told)
        answer = console.get("/events")
        assert answer.status_code == 503
        assert "open already" in answer.json()["error"]


def test_head_has_no_body_and_does_not_listen(console):
    assert console.request("HEAD", "/events").headers["content-type"].startswith("text/event-stream")
    assert console.app.state.console.hub.listeners == 0


@pytest.mark.parametrize("name", ["a\nevent: pulse\ndata: {}", "<script>", "\u2028"])
def test_a_name_cannot_forge_an_event(name):
    assert events.event("pulse", {"name": name}).count(b"\n") == 3
