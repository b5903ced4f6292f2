"""Results that arrive: pushed over one connection, called for, and mapped over many jobs."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from dayjob import AsyncEnqueuer, Discard, Enqueuer, Job, JobFailed, WorkerPool
from dayjob.enqueue import mailbox as mailboxes
from dayjob.errors import BadArguments, BadOption, BadSignature, NotReady, ResultTimeout, Unavailable
from server import running, wait_until


@dataclass
class Watch:
    user: int
    tags: list[str]


@pytest.fixture(autouse=True)
def never_looks_again(monkeypatch):
    """Without a look in between, a result arrives only if it is pushed, or looked for because the connection was lost."""
    monkeypatch.setattr(mailboxes, "LOOK_SECONDS", 3600.0)


@pytest.fixture
def shop(new_pool):
    pool = new_pool(concurrency=4)

    @pool.job
    def create_watch(user: int, tags: list[str]) -> Watch:
        return Watch(user, tags)

    @pool.job
    async def double(n: int) -> int:
        return 2 * n

    @pool.job(max_fails=1)
    def fail() -> None:
        raise ValueError("no good")

    @pool.job
    def drop() -> None:
        raise Discard("not needed")

    with pool:
        yield pool


def of(pool, name):
    return pool.registry.get(name)


def subscribed(enqueuer: Enqueuer) -> mailboxes.Mailbox:
    """The mailbox of the enqueuer's namespace, once messages arrive."""
    found = enqueuer.sender.mailbox()
    found.start()
    wait_until(lambda: found.connected)
    return found


# Calls.


def test_a_call_returns_the_result_in_the_type_of_the_annotation_without_keep(shop):
    create_watch = of(shop, "create_watch")
    assert create_watch.call(user=7, tags=["a"], timeout=60) == Watch(7, ["a"])
    assert create_watch.call(7, ["b"]) == Watch(7, ["b"])
    assert asyncio.run(create_watch.acall(user=8, tags=[], timeout=60)) == Watch(8, [])
    assert of(shop, "double").call(n=4, timeout=60) == 8


def test_a_call_is_pushed_to_a_subscribed_process(shop):
    subscribed(shop.enqueuer)
    assert [of(shop, "double").call(n=n, timeout=60) for n in range(20)] == [2 * n for n in range(20)]


def test_a_result_that_a_call_kept_expires(shop, look, call):
    of(shop, "double").call(n=1, timeout=60)
    (done,) = look.members(look.keys.done)
    assert 0 < call("TTL", look.keys.result(done["id"])) <= 120


@pytest.mark.parametrize(
    ("name", "message"),
    [("fail", "ValueError: no good"), ("drop", "the job ended without a result: discarded: not needed")],
)
def test_a_call_whose_job_ends_without_a_result_raises_the_reason(shop, name, message):
    with pytest.raises(JobFailed, match=message):
        of(shop, name).call(timeout=60)


def test_a_call_of_a_job_that_expires_or_is_cancelled_raises_the_reason(new_pool, admin, look):
    pool = new_pool(concurrency=1)
    started, go = threading.Event(), threading.Event()

    @pool.job
    def block(job: Job) -> None:
        started.set()
        while not job.checkin() and not go.is_set():
            go.wait(0.01)

    @pool.job
    def late() -> None: ...

    with pool, ThreadPoolExecutor(2) as threads:
        blocked = threads.submit(block.call, timeout=60)
        assert started.wait(60)
        expired = threads.submit(late.using(expires=0.001).call, timeout=60)
        (waiting,) = wait_until(lambda: look.queue("late"))
        wait_until(lambda: look.now() * 1000 > waiting["expires"] + 1)
        (job,) = wait_until(lambda: admin.jobs(state="running").jobs)
        admin.cancel(job.id)
        with pytest.raises(JobFailed, match="an operator cancelled it"):
            blocked.result(60)
        with pytest.raises(JobFailed, match="without a result: expired before it could start"):
            expired.result(60)


def test_a_call_that_times_out_gives_the_state_of_its_job(new_pool):
    work = new_pool().register("work", lambda: None)
    with pytest.raises(ResultTimeout, match=r"no result of job \w+ within 0.05 s. "):
        work.call(timeout=0.05)


def test_a_call_refuses_what_cannot_be_kept_or_passed_before_anything_is_sent(new_pool, look):
    pool = new_pool()

    @pool.job
    def opened() -> threading.Lock: ...

    @pool.job
    def wait(timeout: int) -> None: ...

    @pool.job
    def work(a: int) -> None: ...

    with pytest.raises(BadSignature, match="cannot be kept"):
        opened.call(timeout=1)
    with pytest.raises(NotReady, match="has an argument named timeout"):
        wait.call(timeout=1)
    with pytest.raises(BadArguments):
        work.call(b=1, timeout=1)
    with pytest.raises(BadOption, match="give seconds"):
        work.call(a=1, timeout="soon")
    assert look.queue("opened") == look.queue("wait") == look.queue("work") == []


def test_a_call_is_sent_at_once_inside_a_transaction_an_atomic_job_and_a_batch(new_pool):
    late = []
    pool, other = new_pool(), new_pool(on_commit=late.append)
    answer = other.register("answer", lambda: 5)

    @pool.job(atomic=True, keep=60)
    def ask() -> int:
        return answer.call(timeout=60)

    with pool, other:
        assert ask.result(ask.enqueue(), 60) == 5
        with other.batch():
            assert answer.call(timeout=60) == 5
    assert late == []


def test_a_job_cannot_wait_for_a_job_of_its_own_pool(new_pool, look):
    pool = new_pool(concurrency=2)
    inner = pool.register("inner", lambda: 1, keep=60)

    def outer() -> list[str]:
        def refused(wait) -> str:
            with pytest.raises(NotReady) as raised:
                wait()
            return str(raised.value)

        waiting = pool.enqueuer.using().enqueue_in("inner", 3600)
        return [
            refused(lambda: inner.call(timeout=60)),
            refused(lambda: list(inner.map([{}]))),
            refused(lambda: inner.result(waiting, 5)),
            refused(lambda: asyncio.run(inner.acall(timeout=60))),
        ]

    outer = pool.register("outer", outer, keep=60)
    with pool:
        found = outer.result(outer.enqueue(), 60)
    assert len(found) == 4
    assert all("the job 'outer' would wait for a job 'inner' of its own pool" in text for text in found)
    assert look.queue("inner") == []


def test_a_job_may_read_a_result_of_its_own_pool_that_is_there(new_pool):
    pool = new_pool()
    inner = pool.register("inner", lambda: 1, keep=60)
    outer = pool.register("outer", lambda job_id: inner.result(job_id, 0), keep=60)
    with pool:
        job = inner.enqueue()
        assert inner.result(job, 60) == 1
        assert outer.result(outer.enqueue(job.id), 60) == 1


# Waiting.


def test_threads_and_event_loops_of_a_process_wait_over_one_connection(new_pool, call, keys):
    pool = new_pool(concurrency=20)
    go = threading.Event()
    work = pool.register("work", lambda n: go.wait(60) and n, keep=60)
    with pool, ThreadPoolExecutor(8) as threads:
        jobs = [work.enqueue(n) for n in range(8)]
        inboxes = pool.enqueuer.sender.mailbox()
        waits = [threads.submit(work.result, job, 60) for job in jobs[:4]]
        waits += [threads.submit(lambda job: asyncio.run(work.aresult(job, 60)), job) for job in jobs[4:]]
        wait_until(lambda: len(inboxes._inboxes) == 8 and inboxes.connected)
        assert len(call("PUBSUB", "CHANNELS", keys.mailbox("*"))) == 1
        go.set()
        assert [wait.result(60) for wait in waits] == list(range(8))


def test_a_result_that_was_stored_while_the_connection_was_lost_is_found(enqueuer, call, keys):
    inbox = subscribed(enqueuer)
    with ThreadPoolExecutor(1) as threads:
        wait = threads.submit(enqueuer.result, "j1", 60)
        wait_until(lambda: (call("GET", keys.result("j1")) or b"").startswith(b"waiting "))
        # As if it had been published while the connection was lost.
        call("SET", keys.result("j1"), '{"result":5}')
        assert not wait.done()
        for line in call("CLIENT", "LIST", "TYPE", "pubsub").splitlines():
            call("CLIENT", "KILL", "ID", line.split()[0].removeprefix(b"id="))
        assert wait.result(60) == 5
    wait_until(lambda: inbox.connected)


def test_a_wait_survives_a_restart_of_the_server(tmp_path, namespace):
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as own:
        pool = WorkerPool(namespace=namespace, redis=own.url)
        go = threading.Event()
        work = pool.register("work", lambda: go.wait(60) and 7)
        with pool, ThreadPoolExecutor(1) as threads:
            subscribed(pool.enqueuer)
            wait = threads.submit(work.call, timeout=120)
            wait_until(lambda: pool.enqueuer.sender.mailbox()._inboxes)
            own.kill()
            wait_until(lambda: not pool.enqueuer.sender.mailbox().connected)
            own.start()
            go.set()
            assert wait.result(120) == 7
        pool.enqueuer.close()


def test_a_wait_that_begins_without_a_server_fails_at_once(namespace):
    found = Enqueuer(namespace, redis="redis://127.0.0.1:1")
    with pytest.raises(Unavailable):
        found.result("j1", 60)


def test_a_forked_process_waits_over_a_connection_of_its_own(shop):
    double = of(shop, "double")
    assert double.call(n=1, timeout=60) == 2
    child = os.fork()
    if not child:
        os._exit(0 if double.call(n=21, timeout=60) == 42 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert double.call(n=3, timeout=60) == 6


def test_without_the_right_to_subscribe_results_are_polled_and_a_warning_names_the_rule(
    namespace, server, call, keys, caplog
):
    rights = ("~*", "-@all", "+@read", "+@write", "+@scripting", "+@connection", "+@fast", "+info")
    call("ACL", "SETUSER", namespace, "on", ">pw", "resetchannels", *rights)
    found = Enqueuer(namespace, redis=f"redis://{namespace}:pw@127.0.0.1:{server.port}")
    try:
        with ThreadPoolExecutor(1) as threads:
            wait = threads.submit(found.result, "later", 60)
            wait_until(lambda: "the server refuses SUBSCRIBE" in caplog.text)
            call("SET", keys.result("later"), '{"result":4}')
            assert wait.result(60) == 4
        assert f"ACL SETUSER <user> &{namespace}:* +@pubsub" in caplog.text
    finally:
        found.close()
        call("ACL", "DELUSER", namespace)


def test_a_mailbox_that_nothing_waits_for_closes_its_connection(enqueuer, call, keys, monkeypatch):
    monkeypatch.setattr(mailboxes, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(mailboxes, "QUIET_SECONDS", 0.05)
    found = enqueuer.sender.mailbox()
    call("SET", keys.result("j1"), '{"result":1}')
    found.start()
    wait_until(lambda: found._thread is None)
    wait_until(lambda: not call("PUBSUB", "CHANNELS", keys.mailbox("*")))
    assert enqueuer.result("j1", 60) == 1


# Maps.


def test_a_map_gives_items_and_results_in_order_or_as_they_arrive(shop):
    double = of(shop, "double")
    items = [{"n": n} for n in range(30)]
    assert [(item["n"], value) for item, value in double.map(items, timeout=60)] == [
        (n, 2 * n) for n in range(30)
    ]
    found = list(double.map(items, ordered=False, in_flight=7, timeout=60))
    assert sorted((item["n"], value) for item, value in found) == [(n, 2 * n) for n in range(30)]

    async def main():
        return [value async for _, value in double.amap(items, in_flight=3, timeout=60)]

    assert asyncio.run(main()) == [2 * n for n in range(30)]


def test_a_map_takes_items_and_enqueues_jobs_only_as_results_are_taken(shop):
    taken = []

    def items():
        for n in range(1000):
            taken.append(n)
            yield {"n": n}

    results = of(shop, "double").map(items(), in_flight=10, timeout=60)
    assert taken == []
    for n in range(20):
        assert next(results)[1] == 2 * n
        assert len(taken) <= n + 1 + 10
    results.close()
    assert len(taken) <= 30


def test_a_slow_job_does_not_hold_up_the_others_of_an_unordered_map(new_pool):
    pool = new_pool(concurrency=4)
    go = threading.Event()
    work = pool.register("work", lambda n: (n > 0 or go.wait(60)) and n)
    with pool:
        results = work.map([{"n": n} for n in range(4)], ordered=False, timeout=60)
        assert sorted(next(results)[1] for _ in range(3)) == [1, 2, 3]
        go.set()
        assert next(results)[1] == 0
        assert next(results, None) is None


def test_a_map_raises_the_error_of_a_dead_job_and_a_timeout(shop, new_pool):
    with pytest.raises(JobFailed, match="no good"):
        list(of(shop, "fail").map([{}, {}], timeout=60))
    absent = new_pool().register("absent", lambda: None)
    with pytest.raises(ResultTimeout, match="2 jobs 'absent' of a map have no result within 0.05 s"):
        list(absent.map([{}, {}], timeout=0.05))
    with pytest.raises(BadOption, match="give a number from 1 to 10,000"):
        absent.map([], in_flight=0)
    with pytest.raises(BadOption, match="each item is a job of its own"):
        absent.using(id="x").map([])
    assert list(absent.map([])) == []


# Progress.


def test_the_progress_of_a_running_job_is_its_last_check_in(new_pool, redis_url, namespace):
    gate = threading.Event()
    pool = new_pool(concurrency=1)

    @pool.job(keep=60)
    def count(job: Job) -> None:
        job.checkin("rows", done=0, total=9)
        job.checkin("rows", done=3, total=9)
        gate.wait(300)

    enqueuer = Enqueuer(namespace, redis=redis_url)
    job = count.enqueue()
    assert enqueuer.progress(job) is None
    with pool:
        found = wait_until(lambda: enqueuer.progress(job.id))
        assert (found.message, found.done, found.total) == ("rows", 3, 9)
        assert abs(found.since - time.time()) < 3600
        assert asyncio.run(async_progress(namespace, redis_url, job.id))[:3] == ("rows", 3, 9)
        gate.set()
        enqueuer.result(job, 60)
        wait_until(lambda: enqueuer.progress(job) is None)
    enqueuer.close()


async def async_progress(namespace, redis_url, job_id):
    enqueuer = AsyncEnqueuer(namespace, redis=redis_url)
    try:
        return await enqueuer.progress(job_id)
    finally:
        await enqueuer.close()
