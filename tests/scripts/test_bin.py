"""The bin: what is deleted goes there whole, comes back where it was, and expires by itself."""

from __future__ import annotations

import pytest

from dayjob.store import codec
from dayjob.store.link import walk
from dayjob.store.ops import bin, broken, operate

LATER = 4_000_000_000


@pytest.fixture
def deletion(keys):
    return bin.Deletion(keys, actor="ada", action="delete", subject="test")


@pytest.fixture
def undo(keys, link):
    """Undo everything; the answer is how many came back."""

    def go() -> int:
        back = 0
        for one in walk(link, bin.deletions(keys)):
            back += walk(link, bin.undo_all(keys, one)).count
        return back

    return go


def job(name: str, job_id: str, **more) -> bytes:
    return codec.write(codec.quoted(name), job_id, 5.0, b'{"n":1}', more)


def test_a_purged_queue_comes_back_in_its_order_ahead_of_what_came_in_since(
    keys, link, put, look, deletion, undo, totals
):
    jobs = [job("a", f"id{i}") for i in range(250)]
    for first in range(0, 250, 50):
        put("a", *(one.decode() for one in jobs[first : first + 50]))
    assert walk(link, operate.purge(keys, "a", deletion=deletion)) == 250
    assert look().queues == {}
    assert look().jobs == 250
    put("a", "new")
    assert undo() == 250
    assert look().queues == {"a": [*jobs, b"new"]}
    assert look().bin == {}
    assert totals() == {"deleted:a": 250, "restored:a": 250}


def test_entries_that_cannot_be_read_keep_their_places_among_the_others(
    keys, link, put, look, deletion, undo
):
    jobs = [job("a", "id1"), b"no job", job("a", "id2"), b"none either", job("a", "id3")]
    put("a", *(one.decode() for one in jobs))
    walk(link, operate.purge(keys, "a", deletion=deletion))
    assert undo() == 5
    assert look().queues == {"a": jobs}


def test_waiting_jobs_that_were_picked_come_back_in_their_order(keys, link, put, look, deletion, undo):
    put("a", *"123456")
    picked = [(place, b"%d" % (place + 1)) for place in (1, 3, 4)]
    assert link.run(operate.unqueue_many(keys, "a", picked, deletion=deletion)) == 3
    assert look().queues == {"a": [b"1", b"3", b"6"]}
    assert undo() == 3
    assert look().queues == {"a": [b"2", b"4", b"5", b"1", b"3", b"6"]}


@pytest.mark.parametrize("place", ["scheduled", "retry", "dead", "done"])
def test_a_member_of_a_set_comes_back_with_its_exact_score(keys, link, call, look, deletion, undo, place):
    source = getattr(keys, place)
    call("ZADD", source, "1700000000.123", job("a", "id1"), 7, b"no job")
    members = [job("a", "id1"), b"no job"]
    assert walk(link, operate.delete_many(keys, source, members, deletion=deletion)) == 2
    assert getattr(look(), place) == {}
    assert undo() == 2
    assert getattr(look(), place) == {job("a", "id1"): 1700000000.123, b"no job": 7.0}


def test_broken_entries_come_back_the_oldest_first(keys, link, call, look, deletion, undo):
    call("RPUSH", keys.broken, "{}\none", "{}\ntwo", "{}\nthree")
    for _ in range(2):
        entry = link.run(broken.page(keys)).entries[0]
        assert link.run(operate.delete_broken(keys, entry, deletion=deletion))
    assert undo() == 2
    assert look().broken == [b"{}\none", b"{}\ntwo", b"{}\nthree"]


@pytest.mark.parametrize("value", [b"id1", b"1", b'{"name":"a","args":{"n":2}}'])
def test_a_unique_key_is_released_and_taken_again_with_its_value(
    keys, link, call, put, look, deletion, undo, value
):
    key = keys.unique("a", "u")
    call("SET", key, value, "EX", 1000)
    put("a", job("a", "id1", unique=True, unique_key=key).decode())
    assert walk(link, operate.purge(keys, "a", deletion=deletion)) == 1
    assert look().unique == {}
    assert undo() == 1
    assert look().unique == {key: value}
    assert 900 <= call("TTL", key) <= 1000


def test_a_job_whose_unique_key_is_anothers_stays_in_the_bin(keys, link, call, put, look, deletion):
    key = keys.unique("a", "u")
    call("SET", key, "id1")
    mine = job("a", "id1", unique=True, unique_key=key)
    put("a", "before", mine.decode(), "behind")
    walk(link, operate.purge(keys, "a", deletion=deletion))
    call("SET", key, "id2")
    (found,) = walk(link, bin.deletions(keys))
    answer = walk(link, bin.undo_all(keys, found))
    assert (answer.count, answer.holder) == (2, "id2")
    assert look().queues == {"a": [b"before", b"behind"]}
    assert list(look().bin.values()) == [[mine]]
    assert look().unique == {key: b"id2"}
    call("DEL", key)
    assert walk(link, bin.undo_all(keys, *walk(link, bin.deletions(keys)))).count == 1
    assert look().queues == {"a": [mine, b"before", b"behind"]}


def test_a_unique_key_that_was_anothers_is_neither_released_nor_taken(
    keys, link, call, put, look, deletion, undo
):
    key = keys.unique("a", "u")
    call("SET", key, "id2")
    put("a", job("a", "id1", unique=True, unique_key=key).decode())
    walk(link, operate.purge(keys, "a", deletion=deletion))
    assert look().unique == {key: b"id2"}
    assert undo() == 1
    assert look().unique == {key: b"id2"}


def test_a_set_that_has_the_same_bytes_by_now_keeps_them_and_the_bin_its_own(
    keys, link, call, look, deletion
):
    call("ZADD", keys.scheduled, 5, "x")
    walk(link, operate.delete_many(keys, keys.scheduled, [b"x"], deletion=deletion))
    call("ZADD", keys.scheduled, 9, "x")
    (found,) = walk(link, bin.deletions(keys))
    answer = walk(link, bin.undo_all(keys, found))
    assert (answer.count, answer.same) == (0, 1)
    assert look().scheduled == {b"x": 9.0}
    assert list(look().bin.values()) == [[b"x"]]


def test_undo_wakes_a_pool_for_a_queue_and_the_leader_for_what_is_due_first(
    keys, link, call, put, deletion, undo
):
    put("a", "1")
    call("ZADD", keys.scheduled, LATER, "later", 5, "x")
    walk(link, operate.purge(keys, "a", deletion=deletion))
    walk(link, operate.delete_many(keys, keys.scheduled, [b"x"], deletion=deletion))
    call("DEL", keys.bell("a"), keys.due)
    undo()
    assert call("EXISTS", keys.bell("a"), keys.due) == 2


def test_the_bin_expires_by_itself_ten_minutes_after_the_last_deletion(keys, link, call, put, deletion):
    put("a", "1")
    walk(link, operate.purge(keys, "a", deletion=deletion))
    parts = [keys.bin, keys.bin_part(deletion.id, 0)]
    assert all(590_000 < call("PTTL", key) <= 600_000 for key in parts)
    call("PEXPIRE", parts[0], 1000)
    call("PEXPIRE", parts[1], 1000)
    put("a", "2")
    walk(link, operate.purge(keys, "a", deletion=deletion))
    assert all(590_000 < call("PTTL", key) <= 600_000 for key in parts)


def test_what_has_expired_is_not_listed_and_leaves_no_trace(keys, link, call, put, deletion):
    put("a", "1")
    walk(link, operate.purge(keys, "a", deletion=deletion))
    call("DEL", keys.bin_part(deletion.id, 0))
    assert walk(link, bin.deletions(keys)) == []
    (member,) = call("ZRANGE", keys.bin, 0, -1)
    call("ZADD", keys.bin, 1, member)
    put("a", "2")
    other = bin.Deletion(keys, actor="bob", action="purge", subject="queue a")
    walk(link, operate.purge(keys, "a", deletion=other))
    assert [one.about.id for one in walk(link, bin.deletions(keys))] == [other.id]
    assert call("ZCARD", keys.bin) == 1


def test_a_large_deletion_is_in_parts_and_comes_back_in_order(
    keys, link, put, look, deletion, undo, monkeypatch
):
    monkeypatch.setattr(bin, "PART_SIZE", 100)
    numbers = [str(i) for i in range(350)]
    put("a", *numbers)
    assert walk(link, operate.purge(keys, "a", deletion=deletion)) == 350
    walk(link, deletion.renew())
    assert [len(part) for part in look().bin.values()] == [100, 100, 100, 50]
    (found,) = walk(link, bin.deletions(keys))
    assert (found.jobs, len(found.parts)) == (350, 4)
    assert undo() == 350
    assert look().queues == {"a": [number.encode() for number in numbers]}
    assert walk(link, bin.deletions(keys)) == []


def test_renewing_begins_the_time_of_every_part_anew(keys, link, call, put, deletion, monkeypatch):
    monkeypatch.setattr(bin, "PART_SIZE", 100)
    put("a", *map(str, range(150)))
    walk(link, operate.purge(keys, "a", deletion=deletion))
    call("PEXPIRE", keys.bin_part(deletion.id, 0), 1000)
    walk(link, deletion.renew())
    assert call("PTTL", keys.bin_part(deletion.id, 0)) > 590_000


def test_two_who_undo_the_same_put_each_job_back_once(keys, link, put, look, deletion):
    put("a", "1", "2")
    walk(link, operate.purge(keys, "a", deletion=deletion))
    (found,) = walk(link, bin.deletions(keys))
    part = found.parts[0][0]
    op = bin.undo(keys, part, link.run(bin.read_part(keys, part, skip=0, size=10)))
    assert link.run(op).count == 2
    assert link.run(op).count == 0
    assert look().queues == {"a": [b"1", b"2"]}


def test_identical_payloads_are_as_many_jobs_in_the_bin_and_back(keys, link, put, look, deletion, undo):
    put("a", "x", "x", "x")
    walk(link, operate.purge(keys, "a", deletion=deletion))
    assert look().jobs == 3
    assert undo() == 3
    assert look().queues == {"a": [b"x"] * 3}
