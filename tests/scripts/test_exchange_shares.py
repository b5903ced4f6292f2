"""Shares: what each queue gets of the room, on average over many requests."""

from __future__ import annotations

import random

import pytest

from dayjob.store.ops.consume import Want
from pools import jobs_of

#: Points of the circle that one series of requests takes, evenly spread.
POINTS = 64


def shares(pool, wants, room, points):
    """How many jobs of each name came, over one request for each point."""
    got = dict.fromkeys((want.name for want in wants), 0)
    finished: dict[str, list[str]] = {}
    for u in points:
        reply = pool.exchange(*wants, room=room, done=finished, u=u)
        assert len(jobs_of(reply)) == room
        finished = {}
        for token, name, _ in jobs_of(reply):
            got[name] += 1
            finished.setdefault(name, []).append(token)
    return got


def even(count=POINTS):
    return [(i + 0.5) / count for i in range(count)]


@pytest.mark.parametrize("room", [1, 2, 7, 100])
@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (10, 1), (2, 3, 5), (1,), (100_000, 1)])
def test_large_queues_share_by_weight_exactly(pool, put, weights, room):
    wants = [Want(f"n{i}", weight, fetch=True) for i, weight in enumerate(weights)]
    for want in wants:
        put(want.name, *(b"x" for _ in range(room * POINTS)))
    got = shares(pool, wants, room, even())
    for want in wants:
        assert got[want.name] == pytest.approx(POINTS * room * want.weight / sum(weights), abs=1.01)


@pytest.mark.parametrize("room", [1, 2, 7])
def test_the_order_of_the_names_does_not_matter_on_average(pool, put, room):
    wants = [Want("heavy", 3, fetch=True), Want("light", 1, fetch=True)]
    for want in wants:
        put(want.name, *(b"x" for _ in range(2 * room * POINTS)))
    there = shares(pool, wants, room, even())
    back = shares(pool, wants[::-1], room, even())
    assert there["light"] == pytest.approx(back["light"], abs=1.01)


def test_one_request_is_within_one_job_of_its_share(pool, put):
    """No luck is needed for large rooms: only the rounding is drawn."""
    rng = random.Random(1)
    wants = [Want(f"n{i}", weight, fetch=True) for i, weight in enumerate((5, 3, 2))]
    for want in wants:
        put(want.name, *(b"x" for _ in range(3000)))
    for _ in range(30):
        got = shares(pool, wants, 10, [rng.random()])
        assert all(abs(got[want.name] - want.weight) <= 1 for want in wants)


@pytest.mark.parametrize("room", [1, 2, 7, 100])
def test_random_points_give_the_same_average(pool, put, room):
    rng = random.Random(room)
    wants = [Want("heavy", 3, fetch=True), Want("light", 1, fetch=True)]
    count = 200
    for want in wants:
        put(want.name, *(b"x" for _ in range(room * count)))
    got = shares(pool, wants, room, [rng.random() for _ in range(count)])
    # The share of one request varies by less than half a job.
    assert got["light"] == pytest.approx(count * room / 4, abs=4 * 0.5 * count**0.5)


def test_what_small_queues_leave_over_is_dealt_by_weight_too(pool, put):
    rng = random.Random(4)
    weights = {"small": 3, "tiny": 2, "left": 1, "right": 1}
    wants = [Want(name, weight, fetch=True) for name, weight in weights.items()]
    count = 600
    for name in ("left", "right"):
        put(name, *(b"x" for _ in range(count * 3)))
    got = dict.fromkeys(weights, 0)
    for _ in range(count):
        put("small", "1")
        put("tiny", "1")
        for name, jobs in shares(pool, wants, 5, [rng.random()]).items():
            got[name] += jobs
    assert (got["small"], got["tiny"]) == (count, count)
    assert got["left"] == pytest.approx(count * 1.5, abs=4 * 0.5 * count**0.5)


@pytest.mark.parametrize("u", [0.0, 0.3, 0.5, 0.999999, 1 - 2**-53])
def test_all_of_the_room_is_used_while_there_is_anything_to_fetch(pool, put, u):
    put("a", *"12")
    put("b", *"345")
    put("c", "6")
    wants = [Want("a", 100, fetch=True), Want("b", 1, fetch=True), Want("c", 7, fetch=True)]
    assert len(jobs_of(pool.exchange(*wants, room=5, u=u))) == 5
    assert len(jobs_of(pool.exchange(*wants, room=5, u=u))) == 1


def test_a_heavy_name_that_has_nothing_takes_no_room(pool, put):
    put("b", *"123")
    assert len(jobs_of(pool.exchange(Want("a", 1000, fetch=True), "b", room=3))) == 3


def test_many_names_with_one_job_each_are_all_emptied_in_the_end(pool, put):
    names = [f"n{i}" for i in range(50)]
    for name in names:
        put(name, "1")
    rng = random.Random(2)
    seen = []
    while len(seen) < 50:
        jobs = jobs_of(pool.exchange(*names, room=7, u=rng.random()))
        assert len(jobs) == min(7, 50 - len(seen))
        seen += [name for _, name, _ in jobs]
    assert sorted(seen) == sorted(names)
