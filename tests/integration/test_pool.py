"""A worker pool: it runs what is enqueued, within its concurrency, fairly, and costs little."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
import time

import pytest

from dayjob import Enqueuer
from dayjob.errors import NotReady
from dayjob.store.scripts import load
from dayjob.worker import shutdown
from dayjob.worker.chores.chores import Chores
from server import sooner_than, wait_until


def test_sync_jobs_run_in_threads_and_async_jobs_on_the_loop_with_their_arguments(new_pool):
    pool = new_pool()
    seen = {}

    @pool.job
    def plain(number: int, text: str = "none"):
        with contextlib.suppress(RuntimeError):
            seen["loop in a thread"] = asyncio.get_running_loop()
        seen["plain"] = (number, text, threading.current_thread())

    @pool.job
    async def coloured(items: list[int], flag: bool = False):
        seen["coloured"] = (items, flag, asyncio.get_running_loop(), threading.current_thread())

    with pool:
        plain.enqueue(7)
        coloured.enqueue([1, 2], flag=True)
        assert pool.drain(60)
    assert seen["plain"][:2] == (7, "none")
    assert seen["coloured"][:2] == ([1, 2], True)
    assert "loop in a thread" not in seen
    assert len({seen["plain"][-1], seen["coloured"][-1], threading.main_thread()}) == 3


def test_start_and_stop_are_idempotent_and_a_stopped_pool_starts_again(new_pool, look):
    pool = new_pool()
    ran = []

    @pool.job
    def note(number: int):
        ran.append(number)

    pool.stop()
    pool.start()
    (first,) = look.pools()
    pool.start()
    assert look.pools() == [first]
    note.enqueue(1)
    assert pool.drain(60)
    pool.stop()
    pool.stop()
    assert look.pools() == []
    note.enqueue(2)
    assert ran == [1]
    pool.start()
    assert look.pools() != [first]
    assert pool.drain(60)
    pool.stop()
    assert ran == [1, 2]
    assert look.pools() == []


def test_an_idle_pool_stops_at_once_however_often_it_is_started(new_pool, monkeypatch):
    # A loop that is not woken would cost its stop so many seconds.
    monkeypatch.setattr(shutdown, "SETTLE_SECONDS", 40.0)
    pool = new_pool()
    pool.register("nothing", lambda: None)
    for i in range(60):
        pool.start()
        if i % 2:
            assert pool.drain(60)
        with sooner_than(30):
            pool.stop(timeout=0)


def test_a_pool_leaves_nothing_running_behind_its_context(new_pool, look):
    before = set(threading.enumerate())
    pool = new_pool()

    @pool.job
    async def coloured():
        pass

    @pool.job
    def plain():
        pass

    with pool as entered:
        assert entered is pool
        assert len(look.pools()) == 1
        coloured.enqueue()
        plain.enqueue()
        assert pool.drain(60)
    assert look.pools() == []
    wait_until(lambda: set(threading.enumerate()) <= before)


def test_a_pool_without_jobs_refuses_to_start_and_says_what_to_write(new_pool, look):
    pool = new_pool()
    with pytest.raises(NotReady, match=r"no jobs.*@pool\.job"):
        pool.start()
    assert look.pools() == []


def test_a_pool_has_three_connections_whatever_its_concurrency_and_names(new_pool, call):
    def connections():
        names = [
            word.removeprefix(b"name=").decode()
            for line in call("CLIENT", "LIST").splitlines()
            for word in line.split()
            if word.startswith(b"name=dayjob:")
        ]
        return sorted(name for name in names if name != "dayjob:enqueuer")

    # Those of the test before may not be closed yet.
    wait_until(lambda: connections() == [])
    pool = new_pool(concurrency=40)
    gate, started = threading.Event(), []
    for i in range(30):

        @pool.job(f"job{i}")
        def work():
            started.append(1)
            assert gate.wait(60)

    with pool:
        for i in range(30):
            pool.enqueuer.enqueue(f"job{i}")
        wait_until(lambda: len(started) == 30)
        wait_until(lambda: connections() == ["dayjob:bell", "dayjob:chores", "dayjob:exchange"])
        gate.set()
        assert pool.drain(60)
        assert connections() == ["dayjob:bell", "dayjob:chores", "dayjob:exchange"]
    wait_until(lambda: connections() == [])


@pytest.mark.parametrize("concurrency", [1, 10])
@pytest.mark.parametrize("weights", [(1, 3), (1, 2, 3, 4, 5)])
def test_queues_with_a_backlog_get_shares_by_their_priority(new_pool, keys, call, weights, concurrency):
    pool = new_pool(concurrency=concurrency)
    names = [f"w{weight}" for weight in weights]
    ran, left, looked = itertools.count(1), [], threading.Event()

    def work():
        # The last that may run looks at the queues, so that they are not empty however slow the test is.
        number = next(ran)
        if number == 10_000:
            left[:] = waiting()
            looked.set()
        elif number > 10_000:
            looked.wait(60)

    for name, weight in zip(names, weights, strict=True):
        pool.register(name, work, priority=weight)
    filled = [30_000 * weight // sum(weights) for weight in weights]
    for name, count in zip(names, filled, strict=True):
        pool.enqueuer.enqueue_many(name, [{}] * count)

    def waiting():
        # All in one step, so that it is what whole exchanges took.
        script = "local n = {} for i, k in ipairs(KEYS) do n[i] = redis.call('LLEN', k) end return n"
        return call("EVAL", script, len(names), *(keys.queue(name) for name in names))

    with pool:
        assert looked.wait(60)
    assert min(left) > 0
    taken = [count - rest for count, rest in zip(filled, left, strict=True)]
    for weight, count in zip(weights, taken, strict=True):
        assert count == pytest.approx(sum(taken) * weight / sum(weights), rel=0.05)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_slow_queue_gets_its_share_beside_a_backlog_of_quick_jobs(new_pool, look, concurrency):
    pool = new_pool(concurrency=concurrency)
    pause, counted, ran, totals = threading.Event(), threading.Event(), itertools.count(1), {}

    def slow():
        # One of them counts, so that neither queue is empty then, however slow the test is.
        number = next(ran)
        if number == 400:
            totals.update(look.totals())
            counted.set()
        elif number > 400:
            counted.wait(60)
        pause.wait(0.002)

    pool.register("quick", lambda: None)
    pool.register("slow", slow)
    pool.enqueuer.enqueue_many("quick", [{}] * 20_000)
    pool.enqueuer.enqueue_many("slow", [{}] * 2000)
    with pool:
        assert counted.wait(60)
    assert totals["done:quick"] == pytest.approx(totals["done:slow"], rel=0.35)


def test_what_was_fetched_ahead_is_given_to_an_idle_pool_when_a_slow_job_takes_the_workers(new_pool, look):
    """Fast and slow jobs under one name: the worst case, since the estimate says that all of them are fast."""
    one, other = new_pool(concurrency=2), new_pool(concurrency=2)
    gate, ran = threading.Event(), {"one": 0, "other": 0}
    lock = threading.Lock()

    def note(who, slow):
        if slow:
            gate.wait(200)
        with lock:
            ran[who] += 1

    one.register("mixed", lambda slow=False: note("one", slow))
    other.register("mixed", lambda slow=False: note("other", slow))
    with one:
        one.enqueuer.enqueue_many("mixed", [{}] * 3000)
        assert one.drain(60)
        # Both workers of the first pool are taken, with a batch behind them that it fetched in the same exchange.
        one.enqueuer.enqueue_many("mixed", [{"slow": True}] * 2 + [{}] * 300)
        with other:
            try:
                wait_until(lambda: sum(ran.values()) == 3300)
                assert not gate.is_set()
            finally:
                gate.set()
            assert one.drain(60)
    assert sum(ran.values()) == look.total("done:mixed") == 3302


def test_the_concurrency_is_never_exceeded_by_both_colours_together(new_pool):
    pool = new_pool(concurrency=4)
    lock, gate, pause = threading.Lock(), threading.Event(), threading.Event()
    running, peak, colours = [0], [0], set()

    def enter(colour):
        with lock:
            running[0] += 1
            peak[0] = max(peak[0], running[0])
            colours.add(colour)

    def leave():
        with lock:
            running[0] -= 1

    @pool.job
    def plain():
        enter("plain")
        gate.wait(60)
        pause.wait(0.001)
        leave()

    @pool.job
    async def coloured():
        enter("coloured")
        while not gate.is_set():  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.002)
        # Quick, so that more are fetched ahead than may run.
        await asyncio.sleep(0.001)
        leave()

    for _ in range(300):
        plain.enqueue()
        coloured.enqueue()
    with pool:
        wait_until(lambda: running[0] == 4)
        gate.set()
        assert pool.drain(60)
    assert colours == {"plain", "coloured"}
    assert peak[0] == 4
    assert running[0] == 0


def test_sync_jobs_for_which_there_is_no_thread_stay_in_their_queue(new_pool, look):
    pool = new_pool(concurrency=10, threads=1)
    gate, started, others = threading.Event(), [], []

    @pool.job
    def plain():
        started.append(1)
        gate.wait(60)

    @pool.job
    async def coloured():
        others.append(1)

    for _ in range(20):
        plain.enqueue()
    with pool:
        wait_until(lambda: started)
        for i in range(30):
            coloured.enqueue()
            wait_until(lambda: len(others) == i + 1)
        assert len(started) == 1
        assert look.total("given_back:plain") <= 20
        gate.set()
        assert pool.drain(60)
    assert len(started) == 20


def test_drain_waits_for_what_runs_and_for_what_that_enqueues(new_pool, look):
    pool = new_pool(concurrency=3)
    ran = []

    @pool.job
    def tree(depth: int):
        ran.append(depth)
        if depth:
            tree.enqueue(depth - 1)
            tree.enqueue(depth - 1)

    with pool:
        tree.enqueue(5)
        assert pool.drain(60)
        assert len(ran) == 2**6 - 1
        assert look.queue("tree") == []
        assert look.held() == 0
        assert look.total("done:tree") == 2**6 - 1


def test_drain_says_no_in_time_and_refuses_on_a_pool_that_is_not_started(new_pool):
    pool = new_pool()
    gate = threading.Event()

    @pool.job
    def block():
        gate.wait(60)

    with pytest.raises(NotReady, match="not started"):
        pool.drain()
    with pool:
        block.enqueue()
        assert pool.drain(0.2) is False
        gate.set()
        assert pool.drain(60) is True


def test_names_that_a_pool_does_not_know_are_never_fetched_by_it(new_pool, look, namespace, redis_url):
    pool = new_pool()
    ran = []

    @pool.job
    def mine(number: int):
        ran.append(number)

    others = Enqueuer(namespace, redis=redis_url)
    with pool:
        for i in range(50):
            others.enqueue("theirs", number=i)
            others.enqueue("mine", number=i)
        assert pool.drain(60)
        assert sorted(ran) == list(range(50))
        assert [job["args"]["number"] for job in look.queue("theirs")] == list(range(50))
        assert look.held() == 0
    others.close()
    assert look.totals() == {"done:mine": 50}


def test_two_pools_share_the_work(new_pool, look):
    together = threading.Barrier(4)
    ran = []

    def member(label):
        pool = new_pool(concurrency=2)

        @pool.job("meet")
        def meet():
            # Passed only while all four slots of both pools are in use.
            together.wait(60)
            ran.append(label)

        return pool

    one, two = member("one"), member("two")
    with one, two:
        for _ in range(20):
            one.enqueuer.enqueue("meet")
        wait_until(lambda: len(ran) == 20)
    assert ran.count("one") == ran.count("two") == 10
    assert look.total("done:meet") == 20


def commands_over(server, keys, seconds):
    """What clients send in this namespace over a window of time, by client address, and how long that was."""
    skipped = (load("beat").sha, load("status").sha)
    text = b""
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"MONITOR\r\n")
        began = time.monotonic()
        deadline = began + seconds
        while (left := deadline - time.monotonic()) > 0:
            sock.settimeout(left)
            with contextlib.suppress(TimeoutError):
                text += sock.recv(65536)
    passed = time.monotonic() - began
    found: dict[str, list[str]] = {}
    for line in text.decode().splitlines():
        if keys.prefix in line and " lua]" not in line and not any(sha in line for sha in skipped):
            found.setdefault(line.partition("[")[2].partition("]")[0], []).append(line)
    return found, passed


def test_idle_pools_send_next_to_nothing_beside_their_beats(new_pool, server, keys):
    pools = [new_pool() for _ in range(4)]
    for pool in pools:
        pool.register("nothing", lambda: None)
    with contextlib.ExitStack() as stack:
        for pool in pools:
            stack.enter_context(pool)
            assert pool.drain(60)
        # The one test that measures over a window of time: a rate has no event to wait for. Its bounds are loose:
        # a wait of three seconds begins at most twice in four, and all the chores of a leader are under three a second.
        found, passed = commands_over(server, keys, 4.0)
    by_client = sorted(found.values(), key=len)
    leader, rest = by_client[-1], by_client[:-1]
    # Once, as its second minute begins, a new leader looks up which figures of three days are rolled up.
    assert len([line for line in leader if ":stats:" not in line]) <= 3 * passed
    assert sum(map(len, rest)) <= (2 * len(pools) + 2) * passed / 4.0


def test_an_idle_pool_hears_of_an_enqueue_by_its_bell(new_pool, monkeypatch):
    # Without it, the leader would ring for the queue within a second.
    monkeypatch.setattr(Chores, "_read_names", lambda self: None)
    pool = new_pool()
    ran = []

    @pool.job
    def note(number: int):
        ran.append(number)

    with pool:
        assert pool.drain(60)
        for i in range(20):
            note.enqueue(i)
            wait_until(lambda: len(ran) == i + 1)


def test_jobs_pushed_by_plain_commands_are_found_without_a_bell(new_pool, look, keys, call):
    pool = new_pool()
    ran = []

    @pool.job
    def note(number: int):
        ran.append(number)

    with pool:
        assert pool.drain(60)
        for i in range(3):
            call("LPUSH", keys.queue("note"), look.payload("note", f"x{i}", args={"number": i}))
            wait_until(lambda: len(ran) == i + 1)
    assert ran == [0, 1, 2]


def test_jobs_of_more_than_a_mebibyte_run_and_hold_up_no_other_name(new_pool, look):
    pool = new_pool()
    sizes = {}

    def register(name):
        @pool.job(name)
        def work(data: str):
            sizes.setdefault(name, []).append(len(data))

        return work

    # Whichever of the large names comes first in an exchange uses up its bytes before the others have their share.
    large, other, small = register("large"), register("other"), register("small")
    for _ in range(3):
        large.enqueue("x" * 600_000)
        other.enqueue("x" * 600_000)
        small.enqueue("x")
    with pool:
        assert pool.drain(60)
    assert sizes == {"large": [600_000] * 3, "other": [600_000] * 3, "small": [1] * 3}
    assert look.totals() == {"done:large": 3, "done:other": 3, "done:small": 3}
