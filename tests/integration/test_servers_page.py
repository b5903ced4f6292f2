"""docs/guides/servers.md: the rule for a user with few rights is enough for everything that workers, enqueuers and operators do."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from dayjob import Admin, Concurrency, Job, Rate, Snooze, WorkerPool
from server import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "servers.md"
RULE = re.compile(r"^ACL SETUSER shop (.*)$", re.MULTILINE)
#: What the page says that operators may miss.
NAMED = {"info", "config|get", "slowlog|get", "slowlog|len"}


@pytest.fixture
def url(server, namespace, call):
    """The server's URL for a user with the rule of the page, with this test's namespace in the place of the page's."""
    (rule,) = RULE.findall(PAGE.read_text("utf-8"))
    words = rule.replace("PASSWORD", "pw").replace("shop:", f"{namespace}:").split()
    call("ACL", "SETUSER", namespace, "reset", *words)
    yield f"redis://{namespace}:pw@127.0.0.1:{server.port}"
    call("ACL", "DELUSER", namespace)


@pytest.fixture
def denied(namespace, call):
    """What the server refused to that user, by command, key or channel."""

    def find() -> set[str]:
        found = set()
        for entry in call("ACL", "LOG", "1000"):
            pairs = dict(zip(entry[::2], entry[1::2], strict=True))
            if pairs[b"username"].decode() == namespace:
                found.add(pairs[b"object"].decode())
        return found

    return find


def test_the_rule_of_the_page_is_enough_for_workers_enqueuers_and_operators(url, namespace, denied):
    pool = WorkerPool(namespace=namespace, redis=url, concurrency=4)
    ran: list[str] = []

    @pool.job(keep=60)
    def add(a: int, b: int = 1) -> int:
        return a + b

    @pool.job(max_fails=2, backoff=0.01)
    def retried(job: Job) -> None:
        if job.attempt == 1:
            raise Snooze(after=0.01)
        if not job.fails:
            raise ValueError
        ran.append("retried")

    @pool.job(max_fails=1)
    def dies() -> None:
        raise ValueError

    @pool.job(limits=[Rate(1000, per=1), Concurrency(2, by="source")], fair_by="source")
    def limited(n: int) -> None:
        ran.append("limited")

    @pool.job
    def emits(job: Job) -> None:
        job.emit("part")

    @pool.job(atomic=True)
    def atomic() -> None:
        add.enqueue(1)

    @pool.job(max_concurrency=1, keep_logs="1KB")
    def callback() -> None:
        ran.append("callback")

    @pool.job
    def ticked() -> None:
        ran.append("ticked")

    pool.periodic("* * * * * *", ticked, name="ticks")
    with pool:
        assert add.call(1, timeout=60) == 2
        assert asyncio.run(add.acall(2, timeout=60)) == 3
        assert add.result(add.enqueue(3), 60) == 4
        assert add.enqueue_unique(9) is not None
        add.enqueue_in(0.05, 1)
        retried.enqueue()
        dies.enqueue()
        atomic.enqueue()
        limited.enqueue_many([{"n": n} for n in range(5)])
        limited.using(source="acme").enqueue(6)
        assert [part.value for part in pool.enqueuer.stream(emits.enqueue(), timeout=60)] == ["part"]
        with pool.batch(on_success=callback):
            add.enqueue(1)
        flow = pool.workflow("flow")
        flow.add(add, a=flow.add(add, a=1).result)
        flow.start()
        wait_until(lambda: {"retried", "callback", "ticked"} <= set(ran) and ran.count("limited") == 6)
        with Admin(namespace, redis=url) as admin:
            wait_until(lambda: admin.jobs("dead").jobs)
            outcomes = [
                admin.retry(admin.jobs("dead").jobs[0].id),
                admin.pause("add"),
                admin.resume("add"),
                admin.enqueue("add", {"a": 1}),
            ]
            assert [one.kind for one in outcomes] == ["done"] * 4
            assert {one.queue.name for one in admin.queues().queues} > {"add", "limited"}
            wait_until(lambda: admin.verdict().pools == 1)
    pool.enqueuer.close()
    assert denied() <= NAMED
