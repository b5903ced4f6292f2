"""What pools say of their job types: announce and forget."""

from __future__ import annotations

import pytest

from dayjob.handlers.describe import Described
from dayjob.store.link import walk
from dayjob.store.op import Op
from dayjob.store.ops import job_types


@pytest.fixture
def announce(keys, link):
    return lambda *said: link.run(job_types.announce(keys, said))


@pytest.fixture
def known(keys, link):
    return lambda: {one.described.name: one for one in walk(link, job_types.every(keys))}


def test_what_is_said_is_noted_once_with_its_time(announce, known, now):
    assert announce(Described("a", doc="one"), Described("b", redact=("card",))) == 2
    assert known()["a"].described.doc == "one"
    assert known()["b"].described.redact == ("card",)
    assert now() - 5 <= known()["a"].at <= now()
    assert announce(Described("a", doc="one"), Described("b", redact=("card",))) == 0


def test_what_changed_is_written_and_the_rest_is_left_alone(announce, known, call, keys, now):
    announce(Described("a"), Described("b"))
    call("HSET", keys.job_types, "a|at", int(now()) - 100, "b|at", int(now()) - 100)
    assert announce(Described("a", doc="new"), Described("b")) == 1
    assert known()["a"].described.doc == "new"
    assert known()["a"].at >= now() - 5
    assert known()["b"].at <= now() - 99


def test_that_a_job_type_is_in_use_is_noted_again_after_a_day(announce, known, call, keys, now):
    announce(Described("a"))
    call("HSET", keys.job_types, "a|at", int(now()) - 86_400)
    assert announce(Described("a")) == 1
    assert known()["a"].at >= now() - 5


def test_only_so_many_are_kept_and_those_that_are_known_can_still_change(keys, link, known):
    def announce(*pairs):
        op = job_types.announce(keys, [])
        return link.run(Op(op.command, op.keys, (2, 86_400, "", "", *pairs), int))

    assert announce("a", b'{"name":"a"}', "b", b'{"name":"b"}', "c", b'{"name":"c"}') == 2
    assert set(known()) == {"a", "b"}
    assert announce("a", b'{"name":"a","doc":"x"}', "d", b'{"name":"d"}') == 1
    assert known()["a"].described.doc == "x"


def test_a_key_of_a_wrong_type_is_said_and_left_alone(announce, keys, call):
    call("SET", keys.job_types, "x")
    assert announce(Described("a")) == -1
    assert call("GET", keys.job_types) == b"x"


def test_what_nobody_announces_for_thirty_days_is_forgotten(announce, known, call, keys, link, now):
    announce(Described("old"), Described("new"), Described("odd"))
    call("HSET", keys.job_types, "old|at", int(now()) - 31 * 86_400, "odd|at", "nonsense")
    assert link.run(job_types.forget(keys, ["old", "new", "odd", "never"])) == 2
    assert set(known()) == {"new"}
    assert call("HLEN", keys.job_types) == 2


def test_what_is_no_description_is_passed_over(announce, known, call, keys):
    announce(Described("a"))
    call("HSET", keys.job_types, "b", "{", "c", '{"name": 7}')
    assert set(known()) == {"a"}
