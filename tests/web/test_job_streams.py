"""The stream of a job over HTTP: server-sent events that a client can resume, and the panel of the job's page."""

from __future__ import annotations

import contextlib
import json
import threading

import pytest

from dayjob import Dead, Job, WorkerPool
from server import wait_until

LONG = 60


@pytest.fixture
def going():
    return threading.Event()


@pytest.fixture
def shop(console, redis_url, going):
    """A running pool in the namespace of the console."""
    pool = WorkerPool(namespace=console.namespace, redis=redis_url)

    @pool.job(redact=["card"])
    def talk(job: Job, card: str) -> None:
        job.emit("one ")
        job.emit(f"with {card} ")
        assert going.wait(LONG)
        job.emit("three")

    @pool.job
    def dies(job: Job) -> None:
        job.emit({"n": 1})
        raise Dead("no use")

    with pool:
        yield pool
    pool.enqueuer.close()


@contextlib.contextmanager
def events(console, job_id, **headers):
    """The events of a stream: (event, id, data)."""
    with (
        console.client(headers={**console.headers, **headers}) as client,
        client.stream("GET", f"/api/v1/jobs/{job_id}/stream") as answer,
    ):
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _parsed(answer.iter_lines())


def _parsed(lines):
    fields = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield fields.get("event", "message"), fields.get("id"), json.loads(fields["data"])
            fields = {}


def test_values_come_as_events_and_the_last_one_names_the_end(console, shop, going):
    job = shop.enqueuer.enqueue("talk", card="4111222233334444")
    with events(console, job.id) as found:
        first, second = next(found), next(found)
        assert first[0] == "message"
        assert first[2] == {"value": "one ", "attempt": 1}
        assert second[2]["value"] == "with [redacted] "
        going.set()
        third, end = list(found)
    assert third[2]["value"] == "three"
    assert end == ("end", None, {"state": "completed"})


def test_a_client_that_comes_back_gets_what_it_has_not_seen(console, shop, going):
    job = shop.enqueuer.enqueue("talk", card="4111222233334444")
    with events(console, job.id) as found:
        seen = next(found)
    going.set()
    with events(console, job.id, **{"Last-Event-ID": seen[1]}) as found:
        rest = list(found)
    assert [one[2].get("value") for one in rest] == ["with [redacted] ", "three", None]
    last = rest[-2][1]
    answer = console.get(f"/api/v1/jobs/{job.id}/stream", headers={"Last-Event-ID": last})
    assert answer.status_code == 204
    assert console.get(f"/api/v1/jobs/{job.id}/stream", params={"after": last}).status_code == 204


def test_the_stream_of_a_job_that_dies_ends_with_its_error(console, shop):
    job = shop.enqueuer.enqueue("dies")
    with events(console, job.id) as found:
        values = list(found)
    assert [one[0] for one in values] == ["message", "failed"]
    assert "no use" in values[1][2]["error"]


def test_what_is_no_stream(console, shop):
    answer = console.get("/api/v1/jobs/nothing/stream")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_job")
    answer = console.get("/api/v1/jobs/nothing/stream", headers={"Last-Event-ID": "x"})
    assert answer.status_code == 400


def test_an_open_stream_ends_when_the_console_stops(console, shop, going):
    job = shop.enqueuer.enqueue("talk", card="4111222233334444")
    with events(console, job.id) as found:
        next(found)
        wait_until(lambda: console.app.state.console.job_streams)
        console.server.should_exit = True
        assert [one[0] for one in found][-1:] in ([], ["message"])
    going.set()


def test_the_page_of_a_job_shows_what_it_emitted(console, shop, going):
    going.set()
    job = shop.enqueuer.enqueue("talk", card="4111222233334444")
    list(shop.enqueuer.stream(job, timeout=LONG))
    wait_until(
        lambda: console.get("/job", params={"id": job.id}, headers={"accept": "text/html"}).status_code == 200
    )
    page = console.get("/job", params={"id": job.id}, headers={"accept": "text/html"}).text
    assert "one with [redacted] three" in page
