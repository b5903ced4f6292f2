"""Every round trip of every operation: cut before it, after it, and within its answer; and its process killed there.

Nothing is lost, nothing is doubled, and every repeat has its death in the job. DAYJOB_PROOF=full tries every byte.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import zlib
from collections import Counter

import pytest

from crash_groups import ENDED, TOTALS, groups_done, groups_of, state_of_groups, with_groups
from crashes import (
    FAMILIES,
    Found,
    Operation,
    bury_all,
    dial,
    family_done,
    family_of,
    fill,
    finished,
    pool_of,
    survey,
    totals_of,
    with_parents,
)
from dayjob.store.keys import Keys
from dayjob.store.op import plain
from dayjob.store.scripts import all_names, load
from nursery import OPERATIONS as ALL
from nursery import Nursery
from proxy import AFTER, BEFORE, PASS, Fault, Proxy, proxied, reply
from server import Server, running, wait_until

FULL = os.environ.get("DAYJOB_PROOF") == "full"
#: What a connection says before its first request, and what only waits.
GREETINGS = (b"CLIENT", b"HELLO", b"AUTH", b"SELECT", b"COMMAND")
#: All bytes of a short answer, some of a long one.
BYTES = (*range(1, 40), 50, 60, 80, 100, 150, 200, 400, 800)
#: Where a round trip may be cut; the first four always, a few of the others unless all are asked for.
CUTS: tuple[Fault, ...] = (BEFORE, AFTER, reply(0), reply(1), *map(reply, BYTES[1:]))
#: How many round trips an operation may have at most; a pool makes more with time.
MAX_TRIPS = 40

pytestmark = pytest.mark.timeout(1800 if FULL else 900)


@pytest.fixture(scope="module")
def own_server(tmp_path_factory) -> Server:
    """A server of our own, which knows all scripts: else it depends on others how many round trips there are."""
    with running(tmp_path_factory.mktemp("server")) as found:
        link = dial(found.url, Keys("teach"))
        for name in all_names():
            link.run(plain("SCRIPT", "LOAD", load(name).source))
        link.close()
        os.environ["DAYJOB_TEST_PORT"] = str(found.port)
        yield found
        del os.environ["DAYJOB_TEST_PORT"]


@pytest.fixture(scope="module")
def own_proxy(own_server) -> Proxy:
    with proxied(own_server.port) as found:
        yield found


@pytest.fixture(scope="module")
def nursery(own_server):
    found = Nursery(own_server.port)
    yield found
    found.close()


@pytest.fixture
def own_link(own_server, keys):
    found = dial(own_server.url, keys)
    yield found
    found.close()


class Trips:
    """Counts round trips, and has a fault for one of them."""

    def __init__(self, at: int = 0, fault: Fault = PASS, then=None) -> None:
        self.count = 0
        self.met = False
        self._at, self._fault, self._then = at, fault, then

    def __call__(self, words: list[bytes]) -> Fault:
        if words[0].upper() in GREETINGS:
            return PASS
        self.count += 1
        if self.count != self._at:
            return PASS
        self.met = True
        if self._then is not None:
            self._then()
        return self._fault


def chosen(name: str, trip: int, faults: tuple[Fault, ...], extra: int) -> list[Fault]:
    """Some of the faults, the same ones in every run; all of them where that is asked for."""
    if FULL:
        return list(faults)
    rng = random.Random(zlib.crc32(f"{name}/{trip}".encode()))
    return [*faults[:4], *rng.sample(faults[4:], extra)]


def done_once(operation: Operation, proxy: Proxy, link, namespace: str, folder, trips: Trips) -> Found:
    """Do an operation behind the proxy; what there is after."""
    keys = Keys(namespace)
    before = operation.ready(keys, link)
    folder.mkdir()
    proxy.each(trips)
    try:
        told = operation.act(proxy.url, keys, folder)
    finally:
        proxy.clear()
    found = survey(keys, link)
    assert sum(found.places.values()) + finished(keys, link) == before + told, found
    assert max(found.ids.values(), default=1) == 1, found
    return found


@pytest.mark.parametrize("name", [name for name, one in ALL.items() if not one.works])
def test_a_cut_at_any_point_of_any_round_trip_changes_nothing(name, own_proxy, own_link, namespace, tmp_path):
    """What there is in the end is the same as without the cut, totals and unique keys included."""
    operation = ALL[name]
    free = Trips()
    right = done_once(operation, own_proxy, own_link, namespace + "-free", tmp_path / "free", free)
    assert 0 < free.count < MAX_TRIPS
    tried = 0
    for trip in range(1, free.count + 1):
        for fault in chosen(name, trip, CUTS, 3):
            tried += 1
            space = f"{namespace}-{tried}"
            trips = Trips(trip, fault)
            found = done_once(operation, own_proxy, own_link, space, tmp_path / str(tried), trips)
            says = f"round trip {trip}, {fault.kind} {fault.amount}"
            assert trips.met, says
            assert found.places == right.places, says
            assert found.totals == right.totals, says
            assert len(found.unique) == len(right.unique), says


def said(folder) -> Counter[str]:
    """Attempts that were started: `<job id> <attempt>`."""
    path = folder / "said"
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


@pytest.mark.parametrize("part", range(4))
def test_a_pool_that_is_cut_at_any_round_trip_runs_each_attempt_once(
    part, own_proxy, own_link, namespace, tmp_path
):
    for trip in range(1 + part, MAX_TRIPS, 4):
        for fault in chosen("work", trip, CUTS, 0) if FULL else [CUTS[(trip // 4 + part) % 4]]:
            space, folder = f"{namespace}-{trip}-{fault.kind}{fault.amount}", tmp_path / f"{trip}{fault}"
            found = done_once(ALL["work"], own_proxy, own_link, space, folder, Trips(trip, fault))
            says = f"round trip {trip}, {fault.kind} {fault.amount}"
            assert finished(Keys(space), own_link) == 5, says
            # Three jobs, a unique one, and one that fails once.
            assert sorted(said(folder).values()) == [1] * 6, says
            assert not [one for one in found.totals if one.startswith(("late", "rewound", "reaped"))], says
            assert not found.unique, says


@pytest.mark.parametrize(
    "fault", CUTS if FULL else CUTS[:4], ids=lambda fault: f"{fault.kind}{fault.amount:g}"
)
def test_a_stop_that_is_cut_at_any_round_trip_loses_nothing(fault, own_proxy, own_link, namespace, tmp_path):
    """What it could not give back is held by a pool whose lease will end, or who is condemned."""
    for trip in range(3, 16, 1 if FULL else 3):
        space, folder = f"{namespace}-{trip}", tmp_path / str(trip)
        done_once(ALL["stop"], own_proxy, own_link, space, folder, Trips(trip, fault))
        keys = Keys(space)
        bury_all(keys, own_link)
        found = survey(keys, own_link)
        assert found.places == {("queue", "a"): 3, ("queue", "one"): 1, ("queue", "fails"): 1}, trip
        assert set(said(folder).values()) == {1}, trip


KILLS = ("before", "after")


def killed(operation: Operation, proxy: Proxy, link, nursery: Nursery, namespace, folder, trip, kind) -> bool:
    """Do an operation in a process that is killed at a round trip; whether it got that far."""
    keys = Keys(namespace)
    operation.ready(keys, link)
    folder.mkdir()
    pid = nursery.begin(operation.name, proxy.url, keys, folder)

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    trips = Trips(trip, BEFORE, kill) if kind == "before" else Trips(trip, reply(0, kill))
    proxy.each(trips)
    status = nursery.go()
    proxy.clear()
    if trips.met:
        # Of several requests sent at once, the answers come as one: it may then end before it is killed. So may a pool
        # that stops, which waits a moment for an answer and no longer.
        assert status == -signal.SIGKILL or (status == 0 and (kind == "after" or operation.works))
        # The proxy may still be passing on what the child had sent.
        proxy.cut()
    else:
        assert status == 0
    return trips.met


@pytest.mark.parametrize("name", [name for name, one in ALL.items() if not one.works])
def test_a_process_that_is_killed_at_any_round_trip_leaves_all_or_nothing(
    name, own_proxy, own_link, nursery, namespace, tmp_path
):
    """What can be done again ends as if it had been done once; an enqueue has stored all of its jobs, or none."""
    operation = ALL[name]
    right = done_once(operation, own_proxy, own_link, namespace + "-free", tmp_path / "free", Trips())
    for trip in range(1, MAX_TRIPS):
        met = []
        for kind in KILLS:
            space, folder = f"{namespace}-{trip}-{kind}", tmp_path / f"{trip}{kind}"
            met.append(killed(operation, own_proxy, own_link, nursery, space, folder, trip, kind))
            keys = Keys(space)
            if not operation.repeatable:
                found = survey(keys, own_link)
                assert found.places in (right.places, Counter()), f"round trip {trip}, {kind}"
                assert met[-1] is False or kind == "after" or not found.places
            else:
                operation.act(own_proxy.url, keys, folder)
                found = survey(keys, own_link)
                assert found.places == right.places, f"round trip {trip}, {kind}"
                assert found.totals == right.totals, f"round trip {trip}, {kind}"
            assert max(found.ids.values(), default=1) == 1
        if not any(met):
            return
    raise AssertionError("more round trips than it should have")


@pytest.mark.parametrize("kind", KILLS)
@pytest.mark.parametrize("name", ["work", "stop"])
def test_a_pool_that_is_killed_at_any_round_trip_loses_nothing_and_each_repeat_has_its_death(
    name, kind, own_proxy, own_link, nursery, namespace, tmp_path
):
    for trip in range(2, MAX_TRIPS if FULL else 22, 1 if FULL else 3):
        space, folder = f"{namespace}-{trip}", tmp_path / str(trip)
        if not killed(ALL[name], own_proxy, own_link, nursery, space, folder, trip, kind):
            return
        keys = Keys(space)
        bury_all(keys, own_link)
        found = survey(keys, own_link)
        assert sum(found.places.values()) + finished(keys, own_link) == 5, trip
        assert max(found.ids.values(), default=1) == 1, trip
        started = said(folder)
        assert set(started.values()) <= {1}, trip
        given_back = sum(n for label, n in found.totals.items() if label.startswith("given_back"))
        for job_id in found.ids:
            attempts = sum(line.split()[0] == job_id for line in started)
            assert attempts <= found.causes[job_id] + given_back, f"round trip {trip}: {job_id}"
        rest = pool_of(own_proxy.url, keys, folder)
        rest.start()
        try:
            wait_until(lambda: finished(keys, own_link) == 5)  # noqa: B023 - waited for here
        finally:
            rest.stop(timeout=2)
        assert not survey(keys, own_link).places, trip


# Atomic jobs.


def assert_family_ran_once(keys, link, says: str) -> None:
    """Every atomic job completed once, and each of its jobs was stored once."""
    found = survey(keys, link)
    assert found.totals["done:parent"] == len(FAMILIES), says
    assert found.totals["done:child"] == sum(FAMILIES), says
    assert not found.places, says
    assert link.run(plain("EXISTS", keys.released)) == 0, says


@pytest.mark.parametrize("fault", CUTS[:4], ids=lambda fault: f"{fault.kind}{fault.amount:g}")
def test_atomic_jobs_whose_pool_is_cut_at_any_round_trip_have_their_children_once(
    fault, own_proxy, own_link, namespace, tmp_path
):
    for trip in range(2, MAX_TRIPS, 1 if FULL else 4):
        space = f"{namespace}-{trip}"
        keys = Keys(space)
        with_parents(keys, own_link)
        own_proxy.each(Trips(trip, fault))
        try:
            ALL["atomic"].act(own_proxy.url, keys, tmp_path)
        finally:
            own_proxy.clear()
        assert_family_ran_once(keys, own_link, f"round trip {trip}")


@pytest.mark.parametrize("kind", KILLS)
def test_atomic_jobs_whose_pool_is_killed_at_any_round_trip_have_their_children_once(
    kind, own_proxy, own_link, nursery, namespace, tmp_path
):
    tried = 0
    for trip in range(3, 60, 1 if FULL else 4):
        space, folder = f"{namespace}-{trip}", tmp_path / str(trip)
        if not killed(ALL["atomic"], own_proxy, own_link, nursery, space, folder, trip, kind):
            break
        tried += 1
        keys = Keys(space)
        bury_all(keys, own_link)
        rest = family_of(own_proxy.url, keys)
        rest.start()
        try:
            wait_until(lambda: family_done(keys, own_link))  # noqa: B023 - waited for here
            assert rest.drain(60)
        finally:
            rest.stop(timeout=2)
        assert_family_ran_once(keys, own_link, f"round trip {trip}")
    assert tried >= 3


def test_atomic_jobs_whose_server_is_killed_have_their_children_once(tmp_path, namespace):
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        keys = Keys(namespace)
        link = dial(server.url, keys)
        for _ in range(20):
            with_parents(keys, link)
        pool = family_of(server.url, keys)
        pool.start()
        try:
            for count in (5, 30, 60):
                wait_until(lambda: totals_of(keys, link).get("done:parent", 0) >= count)  # noqa: B023
                server.kill()
                server.start()
                link.close()
                link = dial(server.url, keys)
            wait_until(lambda: totals_of(keys, link).get("done:parent", 0) == 20 * len(FAMILIES))
            wait_until(lambda: totals_of(keys, link).get("done:child", 0) >= 20 * sum(FAMILIES))
            assert pool.drain(60)
        finally:
            pool.stop(timeout=5)
        totals = totals_of(keys, link)
        assert totals["done:child"] == 20 * sum(FAMILIES)
        assert not survey(keys, link).places
        link.close()


# Batches and workflows.


def assert_groups_ended_once(keys, link, says: str, times: int = 1) -> None:
    """Every member, callback and node ran to its end once, and no batch or workflow is stuck."""
    found = survey(keys, link)
    ended = {label: found.totals.get(label, 0) for label in TOTALS}
    assert ended == {label: count * times for label, count in TOTALS.items()}, says
    assert found.places == {("dead", "mortal"): times}, says
    batches, flows = state_of_groups(keys, link)
    assert (batches, flows) == (sorted(ENDED[0] * times), ENDED[1] * times), says


@pytest.mark.parametrize("fault", CUTS[:4], ids=lambda fault: f"{fault.kind}{fault.amount:g}")
def test_batches_and_workflows_whose_pool_is_cut_at_any_round_trip_go_on_once(
    fault, own_proxy, own_link, namespace, tmp_path
):
    for trip in range(2, MAX_TRIPS, 1 if FULL else 4):
        keys = Keys(f"{namespace}-{trip}")
        with_groups(keys, own_link)
        own_proxy.each(Trips(trip, fault))
        try:
            ALL["groups"].act(own_proxy.url, keys, tmp_path)
        finally:
            own_proxy.clear()
        assert_groups_ended_once(keys, own_link, f"round trip {trip}")


@pytest.mark.parametrize("kind", KILLS)
def test_batches_and_workflows_whose_pool_is_killed_at_any_round_trip_go_on_once(
    kind, own_proxy, own_link, nursery, namespace, tmp_path
):
    tried = 0
    for trip in range(3, 80, 1 if FULL else 4):
        space, folder = f"{namespace}-{trip}", tmp_path / str(trip)
        if not killed(ALL["groups"], own_proxy, own_link, nursery, space, folder, trip, kind):
            break
        tried += 1
        keys = Keys(space)
        bury_all(keys, own_link)
        rest = groups_of(own_proxy.url, keys)
        rest.start()
        try:
            wait_until(lambda: groups_done(keys, own_link))  # noqa: B023 - waited for here
            assert rest.drain(60)
        finally:
            rest.stop(timeout=2)
        assert_groups_ended_once(keys, own_link, f"round trip {trip}")
    assert tried >= 3


def test_batches_and_workflows_whose_server_is_killed_go_on_once(tmp_path, namespace, monkeypatch):
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        monkeypatch.setenv("DAYJOB_TEST_PORT", str(server.port))
        keys = Keys(namespace)
        link = dial(server.url, keys)
        for _ in range(10):
            with_groups(keys, link)
        pool = groups_of(server.url, keys)
        pool.start()
        try:
            for count in (5, 20, 40):
                wait_until(lambda: totals_of(keys, link).get("done:member", 0) >= count)  # noqa: B023
                server.kill()
                server.start()
                link.close()
                link = dial(server.url, keys)
            wait_until(lambda: groups_done(keys, link, 10))
            assert pool.drain(60)
        finally:
            pool.stop(timeout=5)
        assert_groups_ended_once(keys, link, "the server was killed", 10)
        link.close()


# What Redis forgets.


@pytest.fixture
def forgetful(own_proxy, own_link, keys, namespace, tmp_path):
    """A pool that has run one job and is idle, and a way to make Redis forget that it heard of it."""
    pool = pool_of(own_proxy.url, keys, tmp_path)
    pool.start()
    raw = fill(keys, own_link, "a", 1)[0]
    wait_until(lambda: finished(keys, own_link) == 1)
    # Its figures have gone out as well: it has nothing more to say.
    wait_until(lambda: pool._runtime.fetcher.all_reported)

    def forget() -> None:
        """As a failover does: the last exchange is undone, and connections are cut."""
        pool_id = pool._runtime.state.pool_id
        last = int(own_link.run(plain("HGET", keys.state(pool_id), "last")))
        own_link.run(plain("HSET", keys.state(pool_id), "last", last - 1))
        own_link.run(plain("HSET", keys.held(pool_id), "1:a", raw))
        own_link.run(plain("HINCRBY", keys.totals, "done:a", -1))
        own_proxy.cut()

    yield forget
    own_proxy.clear()
    pool.stop(timeout=1)


def rewound(keys, link) -> bool:
    totals = survey(keys, link).totals
    return totals.get("done:a") == 1 and totals.get("rewound:a") == 1


def test_an_idle_pool_learns_that_redis_forgot_what_it_had_settled(forgetful, own_link, keys, tmp_path):
    """Nothing else is enqueued that would make it ask."""
    forgetful()
    wait_until(lambda: rewound(keys, own_link))
    assert list(said(tmp_path).values()) == [2]
    assert not survey(keys, own_link).places


@pytest.mark.parametrize(
    "fault", [BEFORE, AFTER, reply(0), reply(3)], ids=lambda fault: f"{fault.kind}{fault.amount:g}"
)
def test_a_pool_that_cannot_read_what_it_holds_asks_again(
    fault, forgetful, own_proxy, own_link, keys, tmp_path
):
    own_proxy.next(fault, only=b"HKEYS")
    forgetful()
    wait_until(lambda: rewound(keys, own_link))
    assert own_proxy.pending == 0
    assert list(said(tmp_path).values()) == [2]
