from __future__ import annotations

import pytest

from dayjob.handlers.describe import Described
from dayjob.options import PoolOptions
from dayjob.store.ops import job_types, maintain
from dayjob.worker.chores import trimmer
from dayjob.worker.chores.trimmer import Trimmer
from pools import set_limit

LONG = trimmer.UNUSED_SECONDS


@pytest.fixture
def known(call, keys):
    return lambda: {name.decode() for name in call("SMEMBERS", keys.known_jobs)}


@pytest.fixture
def chore(keys, link):
    return Trimmer(keys, link, PoolOptions())


@pytest.fixture
def used(put, link, keys, call):
    """Names that something uses, each in one way."""
    put("waiting", "1")
    call("SET", keys.paused("paused"), "1")
    set_limit(keys, link, "limited", 1)
    link.run(job_types.announce(keys, [Described("announced")]))
    call("SET", keys.queue("wrong"), "x")
    names = {"waiting", "paused", "limited", "announced", "wrong"}
    call("SADD", keys.known_jobs, *names)
    return names


def test_names_that_nothing_uses_are_found_and_removed_only_when_asked_to(call, keys, link, known, used):
    call("SADD", keys.known_jobs, "idle", "other")
    names = sorted(known())
    assert link.run(maintain.forget_names(keys, names, remove=False)) == ["idle", "other"]
    assert known() == used | {"idle", "other"}
    assert link.run(maintain.forget_names(keys, names, remove=True)) == ["idle", "other"]
    assert known() == used


def test_the_chore_removes_a_name_that_was_unused_in_every_look_for_long(call, keys, known, chore, used):
    call("SADD", keys.known_jobs, "idle", "of a live pool")
    assert chore.forget_names({"of a live pool"}, now=0.0) == 0
    assert chore.forget_names({"of a live pool"}, now=LONG - 1) == 0
    assert chore.forget_names({"of a live pool"}, now=LONG + 1) == 1
    assert known() == used | {"of a live pool"}


def test_a_name_that_was_used_in_between_begins_anew(call, keys, known, chore, put):
    call("SADD", keys.known_jobs, "idle")
    chore.forget_names((), now=0.0)
    put("idle", "1")
    chore.forget_names((), now=LONG / 2)
    call("DEL", keys.queue("idle"))
    assert chore.forget_names((), now=LONG + 1) == 0
    assert chore.forget_names((), now=2 * LONG + 2) == 1
    assert known() == set()


def test_an_enqueue_makes_a_removed_name_known_again(call, keys, known, link, put):
    call("SADD", keys.known_jobs, "idle")
    link.run(maintain.forget_names(keys, ["idle"], remove=True))
    put("idle", "1")
    assert known() == {"idle"}


def test_a_pass_is_bounded_and_the_next_goes_on_where_it_ended(call, keys, known, chore, monkeypatch):
    monkeypatch.setattr(trimmer, "MAX_NAMES", 300)
    names = [f"n{i:04}" for i in range(1000)]
    call("SADD", keys.known_jobs, *names)
    for _ in range(4):
        assert chore.forget_names((), now=0.0) == 0
    removed = [chore.forget_names((), now=LONG) for _ in range(4)]
    assert max(removed) <= 300
    for _ in range(4):
        chore.forget_names((), now=LONG)
    assert known() == set()
