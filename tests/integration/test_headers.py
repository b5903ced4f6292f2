"""Headers: texts that travel with a job, and the hooks around enqueueing that set them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import msgspec
import pytest

from dayjob import Admin, BadOption, BadSignature, Enqueuer, Job, WorkerPool
from dayjob.middleware import Outgoing
from dayjob.store import codec
from dayjob.testing import testing
from server import wait_until


def test_headers_arrive_with_the_job_and_stay_through_a_retry(new_pool, look):
    pool = new_pool()
    seen: list[dict[str, str]] = []

    @pool.job(max_fails=2, backoff=0)
    def fails(job: Job) -> None:
        seen.append(dict(job.headers))
        raise ValueError("no")

    with pool:
        job = fails.using(headers={"tenant": "acme"}).using(headers={"request-id": "7"}).enqueue()
        wait_until(look.dead)
    assert job.headers == {"tenant": "acme", "request-id": "7"}
    assert seen == [{"tenant": "acme", "request-id": "7"}] * 2
    (dead,) = look.dead()
    assert dead["headers"] == {"tenant": "acme", "request-id": "7"}


def test_a_job_without_headers_has_none_and_its_payload_does_not_grow():
    pool = WorkerPool()

    @pool.job
    def plain() -> None: ...

    with testing(pool) as jobs:
        job = plain.enqueue()
        assert "headers" not in str(jobs.queued[0].raw_args)
    assert job.headers == {}
    assert Job("plain").headers == {}


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"A": "x"}, "is no name"),
        ({"": "x"}, "is no name"),
        ({"a" * 65: "x"}, "is no name"),
        ({"a": 7}, "'a' must be a string, not int"),
        ({"a": "\ud800"}, "lone surrogate"),
        ({"a": "x" * 4096}, "4,097 bytes are too many"),
        ([("a", "b")], "give a dict of strings"),
    ],
)
def test_wrong_headers_are_refused(headers, words):
    pool = WorkerPool()
    mail = pool.register("mail", lambda: None)
    with pytest.raises(BadOption, match=words):
        mail.using(headers=headers)


@pytest.mark.parametrize("raw", [b"7", b'{"a": 7}', b'["a"]', b"null"])
def test_headers_of_a_wrong_form_do_not_fail_the_job(raw):
    wire = codec.read(b'{"name":"mail","id":"1","t":1,"args":{},"headers":%b}' % raw)
    assert codec.job_of(wire).headers == {}


def hooked_pool(pool: WorkerPool, calls: list[tuple[str, int, int]]) -> None:
    @pool.on_enqueue
    def first(outgoing: Outgoing) -> Iterator[None]:
        outgoing.headers["first"] = "1"
        yield
        calls.append((outgoing.name, outgoing.count, len(outgoing.jobs)))

    @pool.on_enqueue
    def second(outgoing: Outgoing) -> Iterator[None]:
        outgoing.headers["second"] = outgoing.headers["first"] + "2"
        yield


def test_a_hook_wraps_every_way_to_enqueue_in_sync_and_async_code(new_pool, look):
    pool = new_pool()
    calls: list[tuple[str, int, int]] = []
    hooked_pool(pool, calls)

    @pool.job
    def mail(n: int = 0) -> None: ...

    mail.enqueue(n=1)
    mail.enqueue_in(60, n=2)
    mail.enqueue_unique(n=3)
    assert mail.enqueue_unique(n=3) is None
    pool.enqueuer.enqueue("mail", n=4)
    pool.enqueuer.using(headers={"own": "x"}).enqueue_many("mail", [{"n": 5}, {"n": 6}])

    async def by_async_code() -> None:
        await mail.aenqueue(n=7)
        await pool.async_enqueuer.enqueue_many("mail", [{"n": 8}] * 3)
        await pool.async_enqueuer.close()

    asyncio.run(by_async_code())
    one = ("mail", 1, 1)
    assert calls == [one, one, one, ("mail", 1, 0), one, ("mail", 2, 2), one, ("mail", 3, 3)]
    payloads = look.queue("mail")
    assert len(payloads) == 9
    assert all(job["headers"].items() >= {"first": "1", "second": "12"}.items() for job in payloads)
    assert [job["headers"].get("own") for job in payloads].count("x") == 2


def test_what_a_hook_raises_before_its_yield_reaches_the_caller_and_nothing_is_sent():
    pool = WorkerPool()
    after: list[BaseException] = []

    @pool.on_enqueue
    def outer(outgoing: Outgoing) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            after.append(error)
            raise

    @pool.on_enqueue
    def refuses(outgoing: Outgoing) -> Iterator[None]:
        raise RuntimeError("no tenant")
        yield

    @pool.job
    def mail() -> None: ...

    with testing(pool) as jobs, pytest.raises(RuntimeError, match="no tenant"):
        mail.enqueue()
    assert jobs.enqueued() == []
    assert [str(error) for error in after] == ["no tenant"]


def test_what_a_hook_raises_after_its_yield_is_logged_because_the_job_is_stored(caplog):
    pool = WorkerPool()

    @pool.on_enqueue
    def breaks(outgoing: Outgoing) -> Iterator[None]:
        yield
        raise RuntimeError("secret text")

    @pool.on_enqueue
    def yields_twice(outgoing: Outgoing) -> Iterator[None]:
        yield
        yield

    @pool.on_enqueue
    def returns_early(outgoing: Outgoing) -> Iterator[None]:
        return
        yield

    @pool.job
    def mail() -> None: ...

    with testing(pool) as jobs, caplog.at_level(logging.ERROR, "dayjob.enqueue"):
        job = mail.enqueue()
    assert [one.id for one in jobs.enqueued("mail")] == [job.id]
    texts = [record.getMessage() for record in caplog.records]
    assert any("failed: RuntimeError" in text for text in texts)
    assert any("second yield" in text for text in texts)
    assert "secret text" not in caplog.text


def test_a_hook_that_is_no_generator_is_refused():
    pool = WorkerPool()
    with pytest.raises(BadSignature, match="plain generator with one 'yield'"):
        pool.on_enqueue(lambda outgoing: None)


def test_consoles_show_headers_without_secrets(namespace, redis_url, new_pool):
    pool = new_pool()

    @pool.job
    def mail() -> None: ...

    with pool:
        pass
    job = mail.using(headers={"tenant": "acme", "api-token": "hunter2"}).enqueue()
    with Admin(namespace, redis=redis_url) as admin:
        found = admin.job(job.id).job
    assert found.headers["tenant"] == "acme"
    assert "hunter2" not in str(found.headers)
    assert msgspec.json.encode(found.headers)


def test_an_enqueuer_without_job_code_can_send_headers():
    enqueuer = Enqueuer("shop", redis="redis://127.0.0.1:1")
    with testing(enqueuer) as jobs:
        enqueuer.using(headers={"a": "b"}).enqueue("mail")
    assert jobs.enqueued("mail")[0].headers == {"a": "b"}
