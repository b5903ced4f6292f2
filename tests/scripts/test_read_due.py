from __future__ import annotations

import pytest

from dayjob.store.ops import maintain
from dayjob.worker.chores import requeuer
from dayjob.worker.shared_link import SharedLink


@pytest.fixture
def read(keys, link):
    return lambda most=100: link.run(maintain.read_due(keys.scheduled, most=most))


@pytest.fixture
def requeue_all(keys, link, monkeypatch):
    """Move all that is due in one turn, however long that takes."""
    monkeypatch.setattr(requeuer, "TURN_SECONDS", 600.0)
    return requeuer.Requeuer(keys, SharedLink(link)).step


def test_what_is_due_comes_oldest_first_and_nothing_comes_early(read, call, keys, now):
    at = now()
    call("ZADD", keys.scheduled, at - 1, "late", at - 100, "older", at + 60, "later", "-inf", "oldest")
    found = read()
    assert [member for member, _ in found.members] == [b"oldest", b"older", b"late"]
    assert found.members[1][1] == pytest.approx(at - 100, abs=0.001)
    assert 30 < found.wait <= 60.001


def test_an_empty_set_has_nothing_due_and_nothing_to_wait_for(read):
    found = read()
    assert (found.members, found.wait) == ([], None)


@pytest.mark.parametrize("score", ["+inf", 4_000_000_000_000])
def test_the_wait_for_something_far_away_is_a_day(read, call, keys, score):
    call("ZADD", keys.scheduled, score, "never")
    assert read().wait == 86_400


def test_no_more_members_than_asked_for(read, call, keys):
    call("ZADD", keys.scheduled, *(word for i in range(150) for word in (i, f"{i:03d}")))
    assert len(read(most=100).members) == 100


def test_the_wait_is_rounded_up_so_that_nobody_comes_early(read, call, keys, now):
    call("ZADD", keys.scheduled, f"{int(now()) + 100}.0001", "x")
    found = read()
    assert found.now + found.wait >= float(call("ZSCORE", keys.scheduled, "x"))


def test_a_hundred_due_jobs_of_a_queue_with_a_wrong_type_do_not_hide_the_ones_behind_them(
    keys, call, look, requeue_all
):
    """What cannot be moved stays due and first; the reader must come to the next."""
    call("SET", keys.queue("bad"), "x")
    call(
        "ZADD",
        keys.scheduled,
        *(word for i in range(100) for word in (1, f'{{"name":"bad","id":"{i}","args":null}}')),
    )
    call("ZADD", keys.scheduled, 2, '{"name":"good","id":"g","args":null}')
    requeue_all()
    assert len(look().queues.get("good", [])) == 1


def test_a_job_that_is_due_since_ever_is_moved_like_any_other(keys, call, look, requeue_all):
    call(
        "ZADD",
        keys.scheduled,
        "-inf",
        '{"name":"a","id":"1","args":null}',
        2,
        '{"name":"b","id":"2","args":null}',
    )
    requeue_all()
    assert {name: len(queue) for name, queue in look().queues.items()} == {"a": 1, "b": 1}
