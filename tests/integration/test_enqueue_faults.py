"""An enqueue has three answers, and a fault of the network never makes two jobs of one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

import dayjob.enqueue.connections
import dayjob.enqueue.sender
from dayjob import AsyncEnqueuer, Enqueuer
from dayjob.enqueue.async_sender import AsyncSender
from dayjob.enqueue.sender import Sender
from dayjob.errors import Full, Rejected, Unavailable, Unknown
from dayjob.store import addresses
from dayjob.store.link import Link
from dayjob.store.op import plain
from dayjob.store.scripts import load
from driver import Driver
from proxy import AFTER, BEFORE, KEEP, PASS, SWALLOW, Fault, Proxy, proxied, reply
from server import Server, running, wait_until


@pytest.fixture
def proxy(server: Server) -> Proxy:
    teach(server)
    with proxied(server.port) as found:
        yield found


def teach(server: Server) -> None:
    """Make a server know the scripts, so that a fault meets the request that is meant and not an EVALSHA in vain."""
    link = Link(addresses.parse_url(server.url), tag="")
    for name in ("enqueue", "schedule", "admit"):
        link.run(plain("SCRIPT", "LOAD", load(name).source))
    link.close()


@pytest.fixture
def hasty(monkeypatch):
    """Enqueuers that wait a fraction of a second where they would wait seconds."""
    monkeypatch.setattr(
        dayjob.enqueue.sender,
        "RETRY_SECONDS",
        tuple(wait and wait / 50 for wait in dayjob.enqueue.sender.RETRY_SECONDS),
    )


@pytest.fixture(params=["sync", "async"])
def make(request, namespace, hasty):
    """Make an enqueuer of either colour that talks to a URL."""
    made = []
    runner = asyncio.Runner() if request.param == "async" else None

    def build(url: str, **options) -> Driver:
        kind = Enqueuer if runner is None else AsyncEnqueuer
        # Long, for the machine may be busy: see `impatient`.
        made.append(Driver(kind(namespace, redis=url, timeout=240, **options), runner))
        return made[-1]

    yield build
    for driver in made:
        driver.close()
    if runner is not None:
        runner.close()


@contextlib.contextmanager
def impatient(enqueuer: Driver, answer_seconds: float = 0.25) -> Iterator[None]:
    """Wait for each answer so long, in a block in which some do not come. The enqueuer is connected before."""
    enqueuer.enqueue("warm")
    sender = enqueuer.enqueuer.sender
    usual = sender.links._answer_seconds
    _wait_for_answers(sender, answer_seconds)
    try:
        yield
    finally:
        _wait_for_answers(sender, usual)


def _wait_for_answers(sender: Sender | AsyncSender, seconds: float) -> None:
    sender.links._answer_seconds = seconds
    if isinstance(sender, Sender):
        for numbered in sender.links.idle:
            numbered.link.hasten(seconds)
    else:
        for here in sender.links._loops.values():
            for numbered in here.idle:
                numbered.link._timeout = seconds


@pytest.fixture
def enqueuer(make, proxy) -> Driver:
    return make(proxy.url)


@pytest.fixture
def stored(call, keys):
    """The ids of all jobs in the queue and in scheduled, oldest first."""

    def read(name: str = "a") -> list[str]:
        waiting = call("LRANGE", keys.queue(name), 0, -1)[::-1] + call("ZRANGE", keys.scheduled, 0, -1)
        return [json.loads(raw)["id"] for raw in waiting]

    return read


def ids(answer) -> list[str]:
    """The ids in what an enqueue returned."""
    if answer is None:
        return []
    return [job.id for job in (answer if isinstance(answer, list) else [answer])]


METHODS = {
    "enqueue": lambda enqueuer, n: enqueuer.enqueue("a", n=n),
    "enqueue_in": lambda enqueuer, n: enqueuer.enqueue_in("a", 600, n=n),
    "enqueue_unique": lambda enqueuer, n: enqueuer.enqueue_unique("a", n=n),
    "enqueue_unique_in": lambda enqueuer, n: enqueuer.enqueue_unique_in("a", 600, n=n),
    "enqueue_many": lambda enqueuer, n: enqueuer.enqueue_many("a", [{"n": n}, {"n": n}, {"n": n}]),
    "many unique": lambda enqueuer, n: enqueuer.using(unique_for=60).enqueue_many(
        "a", [{"n": n}, {"n": -n - 1}]
    ),
    "chosen id": lambda enqueuer, n: enqueuer.using(id=f"id-{n}").enqueue("a", n=n),
    "chosen id, scheduled": lambda enqueuer, n: enqueuer.using(id=f"id-{n}").enqueue_in("a", 600, n=n),
}


@pytest.fixture(params=METHODS)
def send(request):
    return METHODS[request.param]


@pytest.fixture(params=["enqueue", "enqueue_in", "enqueue_unique", "enqueue_many", "chosen id"])
def send_some(request):
    """Fewer of them, where each takes a second."""
    return METHODS[request.param]


# A lost answer.


def test_a_cut_at_any_point_makes_one_job_of_one_enqueue(enqueuer, proxy, send, stored):
    """Before the request, after it, and after each byte of the answer; once and twice in a row."""
    known = ids(send(enqueuer, 0))
    length = proxy.answered
    assert length > 10
    n = 0
    for fault in (BEFORE, AFTER, *map(reply, range(length + 1))):
        for times in (1, 2):
            n += 1
            proxy.next(*[fault] * times)
            known += ids(send(enqueuer, n))
            proxy.clear()
    assert sorted(stored()) == sorted(known)
    assert len(set(known)) == len(known)


def test_a_cut_connection_that_was_idle_is_replaced(enqueuer, proxy, send, stored):
    known = ids(send(enqueuer, 1))
    proxy.cut()
    known += ids(send(enqueuer, 2))
    assert sorted(stored()) == sorted(known)


@pytest.mark.parametrize("method", ["enqueue_unique", "enqueue_unique_in"])
def test_a_unique_enqueue_whose_answer_was_lost_answers_as_the_first_time(enqueuer, proxy, stored, method):
    send = METHODS[method]
    send(enqueuer, 0)
    assert send(enqueuer, 0) is None
    length = proxy.answered
    first = []
    for k in range(length + 1):
        proxy.next(reply(k))
        first.append(send(enqueuer, k + 1))
        proxy.next(reply(k))
        assert send(enqueuer, k + 1) is None
    assert None not in first
    assert len(stored()) == length + 2


def test_a_duplicate_stays_one_when_the_key_goes_before_the_answer_comes(enqueuer, proxy, stored, call):
    """The first answer was "a job like it waits"; a resend must not find the key gone and store one."""
    key = enqueuer.enqueue_unique("a", n=1).unique_key
    proxy.next(reply(0, then=lambda: call_now(proxy, "DEL", key)))
    assert enqueuer.enqueue_unique("a", n=1) is None
    assert len(stored()) == 1


def test_a_scheduled_job_says_when_it_is_due_even_after_a_lost_answer(enqueuer, proxy, call, keys):
    enqueuer.enqueue_in("a", 500, n=0)
    for k in (0, 5, 20):
        proxy.next(reply(k), reply(k), reply(k))
        job = enqueuer.enqueue_in("b", 600 + k, n=1)
        scores = call("ZRANGE", keys.scheduled, 0, -1, "WITHSCORES")
        due = {json.loads(raw)["id"]: float(at) for raw, at in zip(scores[::2], scores[1::2], strict=True)}
        assert job.scheduled_at == pytest.approx(due[job.id], abs=0.0006)


def test_a_script_that_the_server_forgot_is_sent_whole_and_its_answer_may_be_lost_too(
    enqueuer, proxy, send, stored, call
):
    known = ids(send(enqueuer, 0))
    for n, faults in enumerate([(), (PASS, reply(0)), (PASS, BEFORE), (PASS, AFTER), (reply(3),)], 1):
        call("SCRIPT", "FLUSH")
        proxy.next(*faults)
        known += ids(send(enqueuer, n))
        proxy.clear()
    assert sorted(stored()) == sorted(known)


def test_random_cuts_over_many_enqueues_from_many_threads(proxy, namespace, hasty, stored):
    """Jobs in Redis are those whose enqueue answered, and none of them is there twice."""
    rng = random.Random(7)
    choices = [PASS] * 6 + [BEFORE, AFTER, *(reply(k) for k in (0, 1, 7, 23, 24, 40))]
    proxy.each(lambda words: rng.choice(choices) if words[0].startswith(b"EVAL") else PASS)
    enqueuer = Enqueuer(namespace, redis=proxy.url, timeout=60)
    known: list[str] = []
    unknown: list[Unknown] = []

    def work(worker: int) -> None:
        for n in range(150):
            try:
                known.extend(ids(METHODS["enqueue" if n % 2 else "enqueue_in"](enqueuer, n)))
            except Unknown as error:
                unknown.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    proxy.clear()
    known += [error.repeat().id for error in unknown]
    assert len(known) == 900
    assert sorted(stored()) == sorted(known)
    enqueuer.close()


def test_random_cuts_over_many_async_enqueues_at_once(proxy, namespace, hasty, stored):
    rng = random.Random(8)
    choices = [PASS] * 6 + [BEFORE, AFTER, *(reply(k) for k in (0, 1, 7, 23, 24, 40))]
    proxy.each(lambda words: rng.choice(choices) if words[0].startswith(b"EVAL") else PASS)

    async def one(enqueuer: AsyncEnqueuer, n: int) -> str:
        try:
            return (await enqueuer.enqueue("a", n=n)).id
        except Unknown as error:
            unknown = error
        while True:
            try:
                return (await unknown.repeat()).id
            except Unknown as error:
                unknown = error

    async def main() -> list[str]:
        enqueuer = AsyncEnqueuer(namespace, redis=proxy.url, timeout=60)
        try:
            return await asyncio.gather(*(one(enqueuer, n) for n in range(600)))
        finally:
            await enqueuer.close()

    known = asyncio.run(main())
    assert sorted(stored()) == sorted(known)


# Not knowing.


@pytest.mark.parametrize("fault", [SWALLOW, BEFORE, AFTER, reply(0), reply(3)], ids=lambda fault: fault.kind)
def test_an_answer_that_never_comes_is_unknown_and_repeat_is_safe(enqueuer, proxy, send_some, stored, fault):
    with (
        impatient(enqueuer),
        pytest.raises(Unknown, match=r"Redis at redis://127.0.0.1:\d+/0.*repeat\(\) is safe") as caught,
    ):
        proxy.always(fault)
        send_some(enqueuer, 1)
    proxy.clear()
    # Others go on meanwhile, on the same enqueuer.
    between = ids(send_some(enqueuer, 2))
    first = ids(enqueuer.wait(caught.value.repeat()))
    again = ids(enqueuer.wait(caught.value.repeat()))
    assert first == again
    assert sorted(stored()) == sorted(between + first)


def test_a_black_hole_longer_than_the_enqueuer_insists(enqueuer, proxy, send_some, stored):
    known = ids(send_some(enqueuer, 0))
    with impatient(enqueuer):
        proxy.black_hole()
        with pytest.raises(Unknown) as caught:
            send_some(enqueuer, 1)
        with pytest.raises(Unknown) as again:
            enqueuer.wait(caught.value.repeat())
    proxy.resume()
    first = ids(enqueuer.wait(again.value.repeat()))
    assert sorted(stored()) == sorted(known + first)
    assert ids(enqueuer.wait(caught.value.repeat())) == first
    assert sorted(stored()) == sorted(known + first)


def test_a_repeat_that_meets_a_closed_door_still_does_not_know(enqueuer, proxy, stored):
    with impatient(enqueuer), pytest.raises(Unknown) as caught:
        proxy.always(SWALLOW)
        enqueuer.enqueue("a", n=1)
    proxy.clear()
    proxy.refuse()
    with pytest.raises(Unknown) as again:
        enqueuer.wait(caught.value.repeat())
    proxy.accept()
    job = enqueuer.wait(again.value.repeat())
    assert stored() == [job.id]


def test_a_duplicate_is_told_by_repeat_as_well(enqueuer, proxy, stored):
    enqueuer.enqueue_unique("a", n=1)
    with impatient(enqueuer), pytest.raises(Unknown) as caught:
        proxy.always(SWALLOW)
        enqueuer.enqueue_unique("a", n=1)
    proxy.clear()
    assert enqueuer.wait(caught.value.repeat()) is None
    assert len(stored()) == 1


def test_repeat_returns_what_the_first_call_would_have_returned(enqueuer, proxy):
    for items, wanted in (([{"n": 1}], [1]), ([{"n": 1}, {"n": 2}, {"n": 2}], [2])):
        with impatient(enqueuer), pytest.raises(Unknown) as caught:
            proxy.always(SWALLOW)
            enqueuer.using(unique_for=60).enqueue_many("a", items)
        proxy.clear()
        jobs = enqueuer.wait(caught.value.repeat())
        assert [job.args["n"] for job in jobs] == wanted


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_bulk_that_is_lost_on_its_way_is_finished_by_repeat(enqueuer, proxy, stored, batch):
    # Long enough for the answers that do come.
    with impatient(enqueuer, 2.0 if batch > 1 else 0.25), pytest.raises(Unknown) as caught:
        proxy.next(*[PASS] * (batch - 1))
        proxy.always(SWALLOW)
        enqueuer.enqueue_many("a", [{"n": n} for n in range(1200)])
    proxy.clear()
    assert caught.value.stored == (batch - 1) * 500
    if batch > 1:
        assert f"the first {caught.value.stored:,} of 1,200 jobs are stored, the next" in str(caught.value)
    jobs = enqueuer.wait(caught.value.repeat())
    assert [job.args["n"] for job in jobs] == list(range(1200))
    assert stored() == ids(jobs)
    assert ids(enqueuer.wait(caught.value.repeat())) == ids(jobs)
    assert stored() == ids(jobs)


def test_a_bulk_whose_repeat_is_lost_as_well_is_finished_by_any_of_them(enqueuer, proxy, stored):
    with impatient(enqueuer):
        proxy.always(SWALLOW)
        with pytest.raises(Unknown) as first:
            enqueuer.enqueue_many("a", [{"n": n} for n in range(1200)])
        proxy.next(PASS)
        with pytest.raises(Unknown):
            enqueuer.wait(first.value.repeat())
    proxy.clear()
    jobs = enqueuer.wait(first.value.repeat())
    assert stored() == ids(jobs)
    assert len(jobs) == 1200


@pytest.mark.parametrize("start", ["fresh", "used"])
def test_a_bulk_that_is_refused_halfway_is_finished_by_repeat(make, proxy, stored, start):
    """Half of it is stored: to say "not stored" would double that half at the next try."""
    enqueuer = make(proxy.url)
    if start == "used":
        enqueuer.enqueue("b")
    # The answer to the first request comes; the second one is cut, and nothing connects any more.
    proxy.next(reply(1 << 20, then=proxy.shut), BEFORE)
    with pytest.raises(Unknown) as caught:
        enqueuer.enqueue_many("a", [{"n": n} for n in range(12_000)])
    proxy.accept()
    jobs = enqueuer.wait(caught.value.repeat())
    assert stored() == ids(jobs)
    assert len(jobs) == 12_000


# A late copy.


def test_a_late_copy_of_a_request_has_no_effect(enqueuer, proxy, send, stored):
    known = ids(send(enqueuer, 0))
    proxy.next(KEEP)
    known += ids(send(enqueuer, 1))
    assert len(proxy.kept) == 1
    kept = list(proxy.kept)
    proxy.late()
    assert sorted(stored()) == sorted(known)
    known += ids(send(enqueuer, 2))
    proxy.kept += kept
    proxy.late()
    assert sorted(stored()) == sorted(known)


def test_a_late_copy_of_a_unique_job_that_has_started_does_not_enqueue_it_again(
    enqueuer, proxy, stored, call
):
    enqueuer.enqueue("b")
    proxy.next(KEEP)
    job = enqueuer.enqueue_unique("a", n=1)
    call("DEL", job.unique_key)
    proxy.late()
    assert stored() == [job.id]
    assert call("EXISTS", job.unique_key) == 0


def test_a_late_copy_of_an_unknown_and_its_repeat_are_one_job(enqueuer, proxy, send, stored):
    proxy.always(KEEP)
    with pytest.raises(Unknown) as caught:
        send(enqueuer, 1)
    proxy.clear()
    assert stored() == []
    assert proxy.kept
    proxy.late()
    jobs = enqueuer.wait(caught.value.repeat())
    assert sorted(stored()) == sorted(ids(jobs))


# Definite answers.


def test_a_refused_connection_is_unavailable_and_never_unknown(make, proxy, send, stored):
    proxy.refuse()
    for n in range(3):
        with pytest.raises(Unavailable, match=r"Redis at redis://127.0.0.1:\d+/0: .*onnect") as caught:
            send(make(proxy.url), n)
        assert caught.value.sent is False
    proxy.accept()
    assert stored() == []


def test_a_closed_connection_is_known_to_be_closed(make, proxy, stored):
    """After close(), nothing was sent on the old one: what fails then is definite."""
    enqueuer = make(proxy.url)
    enqueuer.enqueue("b")
    enqueuer.close()
    proxy.refuse()
    with pytest.raises(Unavailable):
        enqueuer.enqueue("a", n=1)
    proxy.accept()
    assert stored() == []


def call_now(proxy: Proxy, *words):
    """Send a command to the server behind a proxy, from any thread."""
    link = Link(addresses.parse_url(f"redis://127.0.0.1:{proxy.target}"), tag="")
    try:
        return link.run(plain(*words))
    finally:
        link.close()


@pytest.fixture(scope="module")
def own_server(tmp_path_factory) -> Server:
    """A server whose settings may be changed."""
    with running(tmp_path_factory.mktemp("own")) as found:
        teach(found)
        yield found


@pytest.fixture
def tell(own_server):
    """Send the own server a command."""
    link = Link(addresses.parse_url(own_server.url), tag="")
    yield lambda *words: link.run(plain(*words))
    link.close()


def test_a_full_server_stores_nothing_and_says_so(make, own_server, tell, send, namespace):
    enqueuer = make(own_server.url)
    tell("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(
            Full, match="out of memory; nothing was stored. Raise maxmemory or let workers drain it"
        ):
            send(enqueuer, 1)
    finally:
        tell("CONFIG", "SET", "maxmemory", "0")
    assert tell("KEYS", f"{namespace}:*") == []
    assert send(enqueuer, 1)


def test_full_after_a_lost_answer_is_unknown(make, own_server, tell, send, namespace):
    """The first try may have been stored: "nothing was stored" would be a lie."""
    with proxied(own_server.port) as proxy:
        enqueuer = make(proxy.url)
        proxy.next(reply(0, then=lambda: call_now(proxy, "CONFIG", "SET", "maxmemory", "1")))
        try:
            with pytest.raises(Unknown) as caught:
                send(enqueuer, 1)
        finally:
            tell("CONFIG", "SET", "maxmemory", "0")
        jobs = ids(enqueuer.wait(caught.value.repeat()))
        enqueuer.close()
    waiting = tell("LLEN", f"{namespace}:jobs:a") + tell("ZCARD", f"{namespace}:scheduled")
    assert waiting == len(jobs)


def test_a_bulk_that_fills_the_server_is_finished_when_there_is_room(make, own_server, tell, namespace):
    with proxied(own_server.port) as proxy:
        enqueuer = make(proxy.url)
        proxy.next(reply(1 << 20, then=lambda: call_now(proxy, "CONFIG", "SET", "maxmemory", "1")))
        try:
            with pytest.raises(Unknown) as caught:
                enqueuer.enqueue_many("a", [{"n": n} for n in range(1200)])
        finally:
            tell("CONFIG", "SET", "maxmemory", "0")
        there = tell("LLEN", f"{namespace}:jobs:a")
        assert 0 < there < 1200
        assert caught.value.stored == there
        assert f"the first {there:,} of 1,200 jobs are stored, the others are not" in str(caught.value)
        assert "is out of memory. Raise maxmemory" in str(caught.value)
        assert "nothing was stored" not in str(caught.value)
        jobs = enqueuer.wait(caught.value.repeat())
        enqueuer.close()
    raw = tell("LRANGE", f"{namespace}:jobs:a", 0, -1)[::-1]
    assert [json.loads(one)["id"] for one in raw] == ids(jobs)


PASSING = {
    "READONLY": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    "NOREPLICAS": (
        ("CONFIG", "SET", "min-replicas-to-write", "1"),
        ("CONFIG", "SET", "min-replicas-to-write", "0"),
    ),
}


@pytest.mark.parametrize("code", PASSING)
def test_not_now_is_unavailable_and_nothing_is_stored(make, own_server, tell, send, namespace, code):
    enqueuer = make(own_server.url)
    known = ids(send(enqueuer, 0))
    on, off = PASSING[code]
    tell(*on)
    try:
        with pytest.raises(Unavailable, match=f"answered: {code}") as caught:
            send(enqueuer, 1)
        assert caught.value.sent is False
    finally:
        tell(*off)
    known += ids(send(enqueuer, 2))
    waiting = tell("LLEN", f"{namespace}:jobs:a") + tell("ZCARD", f"{namespace}:scheduled")
    assert waiting == len(known)


def test_a_busy_server_is_unavailable(make, own_server, tell):
    enqueuer = make(own_server.url)
    enqueuer.enqueue("a", n=0)
    tell("CONFIG", "SET", "busy-reply-threshold", "20")
    other = Link(addresses.parse_url(own_server.url), tag="", timeout=120)

    def spin() -> None:
        with pytest.raises(Rejected):
            other.run(plain("EVAL", "while true do end", 0))

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        wait_until(lambda: is_busy(own_server))
        with pytest.raises(Unavailable, match="answered: BUSY"):
            enqueuer.enqueue("a", n=1)
    finally:
        tell("SCRIPT", "KILL")
        thread.join()
        other.close()
        tell("CONFIG", "SET", "busy-reply-threshold", "5000")


def is_busy(server: Server) -> bool:
    link = Link(addresses.parse_url(server.url), tag="")
    try:
        link.run(plain("PING"))
    except Unavailable:
        return True
    finally:
        link.close()
    return False


def test_too_many_clients_is_unavailable(make, own_server, tell):
    # What it was: where few files may be open, it is less than the 10,000 of its settings.
    before = tell("CONFIG", "GET", "maxclients")[1]
    tell("CONFIG", "SET", "maxclients", "1")
    try:
        with pytest.raises(Unavailable, match="max number of clients") as caught:
            make(own_server.url).enqueue("a", n=1)
        assert caught.value.sent is False
    finally:
        tell("CONFIG", "SET", "maxclients", before)


@pytest.mark.parametrize("password", ["", ":wrong@"])
def test_a_missing_or_wrong_password_is_rejected_and_not_shown(make, own_server, tell, password):
    tell("CONFIG", "SET", "requirepass", "secret")
    try:
        with pytest.raises(Rejected, match="NOAUTH|WRONGPASS|invalid|Authentication") as caught:
            make(f"redis://{password}127.0.0.1:{own_server.port}").enqueue("a", n=1)
        assert "wrong@" not in str(caught.value)
        make(f"redis://:secret@127.0.0.1:{own_server.port}").enqueue("a", n=1)
    finally:
        tell("CONFIG", "SET", "requirepass", "")


def test_a_user_without_permission_is_rejected(make, own_server, tell):
    tell("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+client")
    with pytest.raises(Rejected, match="NOPERM"):
        make(f"redis://reader:pw@127.0.0.1:{own_server.port}").enqueue("a", n=1)


# Fork.


def in_child(work) -> int:
    """Run `work` in a forked child that then ends at once; its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_parent_and_child_of_a_fork_both_store_their_jobs(redis_url, namespace, call, keys):
    enqueuer = Enqueuer(namespace, redis=redis_url)
    twin = enqueuer.using(source=1)
    enqueuer.enqueue("a", who="before")
    for _ in range(3):
        assert in_child(lambda: [twin.enqueue("a", who="child"), enqueuer.enqueue("a", who="child")]) == 0
        enqueuer.enqueue("a", who="parent")
    sent = "still in step"
    assert enqueuer.run(plain("ECHO", sent)) == sent.encode()
    found = [json.loads(raw) for raw in call("LRANGE", keys.queue("a"), 0, -1)]
    assert Counter(job["args"]["who"] for job in found) == {"before": 1, "child": 6, "parent": 3}
    assert len({job["id"] for job in found}) == 10
    enqueuer.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_every_connection_is_in_use_leaves_the_child_free(proxy, namespace, stored):
    enqueuer = Enqueuer(namespace, redis=proxy.url, timeout=60)
    most = dayjob.enqueue.connections.MAX_LINKS
    proxy.next(*[Fault("delay", 0.5)] * most)
    threads = [threading.Thread(target=enqueuer.enqueue, args=("a",), kwargs={"n": n}) for n in range(most)]
    for thread in threads:
        thread.start()
    wait_until(lambda: sum(words[0].startswith(b"EVAL") for words in proxy.requests) == most)

    assert in_child(lambda: [os_alarm(), enqueuer.enqueue("a", n=-1)]) == 0
    for thread in threads:
        thread.join()
    assert len(set(stored())) == most + 1
    enqueuer.close()


def os_alarm() -> None:
    """End a child that hangs."""
    import signal

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_child_of_an_async_program_stores_its_jobs(redis_url, namespace, call, keys):
    enqueuer = AsyncEnqueuer(namespace, redis=redis_url)

    async def send(who: str, *, close: bool = False) -> None:
        await enqueuer.enqueue("a", who=who)
        await enqueuer.enqueue("a", who=who)
        if close:
            await enqueuer.close()

    with asyncio.Runner() as runner:
        runner.run(send("parent"))
        assert in_child(lambda: forked_loop(send("child"))) == 0
        runner.run(send("parent", close=True))
    found = [json.loads(raw) for raw in call("LRANGE", keys.queue("a"), 0, -1)]
    assert Counter(job["args"]["who"] for job in found) == {"parent": 4, "child": 2}


def forked_loop(coroutine) -> None:
    """Run a coroutine in a new loop of a forked child."""
    asyncio.set_event_loop(None)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(coroutine)


# Async code: cancellation, loops, connections.


def test_a_cancelled_enqueue_leaves_no_answer_behind_for_the_next(proxy, namespace, stored):
    """Cancelled at many points, from the connection to the last byte; every next answer belongs to its question."""
    rng = random.Random(3)
    proxy.each(lambda words: Fault("delay", rng.choice((0, 0.001, 0.003))))
    known: list[str] = []
    cancelled = 0

    async def main() -> None:
        nonlocal cancelled
        enqueuer = AsyncEnqueuer(namespace, redis=proxy.url)
        for n in range(250):
            if n % 25 == 0:
                await enqueuer.close()
            method = (METHODS["enqueue"], METHODS["enqueue_unique"], METHODS["chosen id"])[n % 3]
            task = asyncio.create_task(method(enqueuer, n))
            turns = rng.randrange(12)
            for _ in range(turns):
                await asyncio.sleep(0)
            if rng.random() < 0.7:
                await asyncio.sleep(rng.random() * 0.012)
            if n % 8 == 0:
                # On a slow machine, few would end before they are cancelled.
                await asyncio.wait([task])
            task.cancel()
            try:
                known.append((await task).id)
            except asyncio.CancelledError:
                cancelled += 1
            token = f"echo-{n}"
            assert await enqueuer.run(plain("ECHO", token)) == token.encode()
        await enqueuer.close()

    asyncio.run(main())
    assert cancelled > 50
    assert len(known) > 20
    found = Counter(stored())
    assert max(found.values()) == 1
    assert set(known) <= set(found)


def test_an_enqueue_cancelled_after_it_was_sent_can_be_repeated_by_its_id(proxy, namespace, stored):
    """Cancelled while its answer is on the way, or while the request itself is, which then arrives late."""

    async def main() -> None:
        enqueuer = AsyncEnqueuer(namespace, redis=proxy.url, timeout=60)
        await enqueuer.enqueue("b")
        for n in range(20):
            proxy.next(SWALLOW if n % 2 else Fault("delay", 2))
            job_id = f"id-{n}"
            task = asyncio.create_task(enqueuer.using(id=job_id).enqueue("a", n=n))
            await asyncio.to_thread(wait_until, partial(was_asked, proxy, job_id.encode()))
            task.cancel()
            assert await ended(task) == "cancelled", n
            await enqueuer.using(id=job_id).enqueue("a", n=n)
        await enqueuer.close()

    asyncio.run(main())
    wait_until(lambda: proxy.delayed == 0)
    assert sorted(stored()) == sorted(f"id-{n}" for n in range(20))


async def ended(task: asyncio.Task) -> str:
    """How a task that was cancelled ended."""
    await asyncio.wait([task])
    return "cancelled" if task.cancelled() else repr(task.exception() or task.result())


def was_asked(proxy: Proxy, word: bytes) -> bool:
    """Whether a request with this word has come to the proxy."""
    return any(word in words for words in list(proxy.requests))


def test_many_async_enqueues_at_once_share_a_few_connections(redis_url, namespace, call, stored):
    async def main() -> int:
        enqueuer = AsyncEnqueuer(namespace, redis=redis_url)
        await asyncio.gather(*(enqueuer.enqueue("a", n=n) for n in range(300)))
        clients = call("CLIENT", "LIST").count(b"name=dayjob:enqueuer")
        await enqueuer.close()
        return clients

    before = call("CLIENT", "LIST").count(b"name=dayjob:enqueuer")
    assert asyncio.run(main()) - before <= dayjob.enqueue.connections.MAX_LINKS
    assert len(stored()) == 300


def test_one_async_enqueuer_serves_one_loop_after_another(redis_url, namespace, stored):
    enqueuer = AsyncEnqueuer(namespace, redis=redis_url)

    async def send(n: int) -> None:
        await enqueuer.enqueue("a", n=n)
        await enqueuer.enqueue("a", n=n)
        await enqueuer.close()

    for n in range(3):
        asyncio.run(send(n))
    assert len(stored()) == 6


def test_one_async_enqueuer_serves_two_loops_at_once(redis_url, namespace, stored):
    enqueuer = AsyncEnqueuer(namespace, redis=redis_url)
    failures: list[BaseException] = []

    async def send(who: str) -> None:
        for n in range(50):
            await enqueuer.enqueue("a", who=who, n=n)
        await enqueuer.close()

    def work(who: str) -> None:
        try:
            asyncio.run(send(who))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(set(stored())) == 150


def test_a_sync_enqueuer_opens_no_more_connections_than_it_may(proxy, namespace, stored):
    enqueuer = Enqueuer(namespace, redis=proxy.url, timeout=240)
    proxy.each(lambda words: Fault("delay", 0.002))
    threads = [
        threading.Thread(target=lambda: [enqueuer.enqueue("a", n=n) for n in range(3)]) for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(stored())) == 120
    assert proxy.connections <= dayjob.enqueue.connections.MAX_LINKS
    enqueuer.close()


def test_after_a_quiet_time_in_which_the_server_was_restarted_a_question_is_answered(namespace, tmp_path):
    async def main():
        enqueuer = AsyncEnqueuer(namespace, redis=server.url)
        job = await enqueuer.enqueue("a")
        server.stop()
        server.start()
        assert await enqueuer.state(job) == "waiting"
        await enqueuer.close()

    with running(tmp_path, "--appendonly", "yes") as server:
        enqueuer = Enqueuer(namespace, redis=server.url)
        job = enqueuer.enqueue("a")
        server.stop()
        server.start()
        assert enqueuer.state(job) == "waiting"
        enqueuer.close()
        asyncio.run(main())
