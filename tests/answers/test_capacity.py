"""Do I have enough workers? How long until this queue is empty? Every place gives the same answer."""

from __future__ import annotations

import re
import threading

import pytest

from server import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def a_busy_minute(call, keys):
    """The last minute: 600 jobs of 1.4 s ended, and none waited when it began. Written before the console reads it.

    The minutes that follow are the same, because a slow machine is still at work when they are the last one. All have their
    sample of the sizes, so that the leader adds none.
    """
    last = int(call("TIME")[0]) // 60 - 1
    for minute in range(last, last + 5):
        call("HSET", keys.minute(minute), "media|r28", 600, "media|o", 600, "media|q", 0, "|q", minute * 60)


def test_workers_that_are_missing_and_when_a_queue_is_empty(
    a_busy_minute, faces, admin, new_pool, keys, call
):
    pool = new_pool(concurrency=2)
    gate = threading.Event()

    @pool.job
    def media(n: int) -> None:
        gate.wait(60)

    @pool.job
    def mail() -> None: ...

    with pool:
        try:
            pool.enqueuer.enqueue_many("media", [{"n": n} for n in range(300)])
            admin.pause("mail")
            mail.enqueue()
            wait_until(lambda: (status := admin.pools().pools[0].status) and status.held >= 2)
            _check(faces, admin)
        finally:
            gate.set()
            call("DEL", keys.queue("media"))


def _check(faces, admin) -> None:
    found = faces.api("/scale")
    (need,) = found["needs"]
    assert (need["kind"], need["queues"]) == ("more_workers", ["media"])
    words = re.compile(r"media needs \d+ more workers?: the backlog grows by \d+ jobs/min\.")
    assert words.fullmatch(found["sentence"])
    assert words.search(faces.page("/"))
    assert words.fullmatch(faces.run("scale").splitlines()[0])
    assert faces.run_json("scale")["needs"][0]["queues"] == ["media"]
    # The queue that grows, and the one that is paused.
    views = {one["queue"]["name"]: one for one in faces.api("/queues")["queues"]}
    assert views["media"]["drain"]["kind"] == "growing"
    assert views["mail"]["drain"] == {"kind": "paused", "seconds": None, "growth": None}
    assert re.search(r"Empty grows by \d+/min", faces.page("/queue", name="media"))
    assert "Empty paused" in faces.page("/queue", name="mail")
    listed = {line.split()[0]: line for line in faces.run("queues", "ls").splitlines()}
    assert "grows by" in listed["media"]
    assert "paused" in listed["mail"]
    assert re.search(r"^empty grows by \d+/min$", faces.run("queues", "show", "media"), re.MULTILINE)


def test_a_queue_that_drains_says_when_it_is_empty(faces, admin, new_pool, look, keys, call):
    pool = new_pool(concurrency=1)
    gate = threading.Event()

    @pool.job
    def media(n: int) -> None:
        gate.wait(60)

    with pool:
        try:
            pool.enqueuer.enqueue_many("media", [{"n": n} for n in range(100)])
            wait_until(lambda: (status := admin.pools().pools[0].status) and status.held >= 1)
            minute = int(look.now() // 60) - 1
            call(
                "HSET",
                keys.minute(minute),
                "media|r28",
                9,
                "media|o",
                9900,
                "media|q",
                10_000,
                "|q",
                minute * 60,
            )
            drain = faces.api("/queue", name="media")["view"]["drain"]
            assert drain["kind"] == "draining"
            # 9,900 fewer in one or two minutes, and about 100 are left.
            assert 0.4 < drain["seconds"] < 1.6
            assert "Empty in " in faces.page("/queue", name="media")
        finally:
            gate.set()
            call("DEL", keys.queue("media"))


@pytest.mark.parametrize("within", ["0s", "2d", "soon"])
def test_a_time_that_cannot_be_is_refused(faces, within):
    assert "--within" in faces.run("scale", "--within", within, code=2)
