from __future__ import annotations

import pytest

from dayjob.store.link import walk
from dayjob.store.ops import events, maintain, operate
from scenarios import job


@pytest.fixture
def watch(keys, link):
    return lambda *names: link.run(maintain.watch_queues(keys, names, most=60)).starving


@pytest.fixture
def logged(keys, link):
    """Name, what happened and how many wait, oldest first."""

    def found():
        (lines,) = walk(link, events.read(keys, ["starved"]))
        return [(one.name, one.after, one.waiting) for _, one in reversed(lines)]

    return found


def test_a_queue_is_logged_when_it_begins_to_starve_and_when_it_is_served_again(
    watch, logged, put, call, keys
):
    put("a", job("id1"), job("id2"))
    put("b", job("id3").replace(b'"t":1', b'"t":%d' % int(call("TIME")[0])))
    assert watch("a", "b", "c") == 1
    assert watch("a", "b", "c") == 1
    assert logged() == [("a", "starved", 2)]
    call("DEL", keys.queue("a"))
    assert watch("a", "b", "c") == 0
    assert watch("a", "b", "c") == 0
    assert logged() == [("a", "starved", 2), ("a", "served", 0)]
    assert call("EXISTS", keys.starved) == 0


def test_a_paused_queue_does_not_starve_and_is_not_served(watch, logged, put, keys, link):
    put("a", job("id1"))
    assert watch("a") == 1
    link.run(operate.pause(keys, "a"))
    assert watch("a") == 0
    assert logged() == [("a", "starved", 1)]


def test_text_in_a_name_is_not_taken_for_the_time(watch, put):
    put("a", b'{"name":"\\"t\\":1","id":"x","t":4000000000,"args":{"t":1}}')
    assert watch("a") == 0


@pytest.mark.parametrize("entry", [b"no json", b'{"name":"a"}'])
def test_an_entry_without_a_time_does_not_starve(watch, put, entry):
    put("a", entry)
    assert watch("a") == 0


def test_a_key_of_a_wrong_type_is_replaced(watch, logged, put, call, keys):
    call("SET", keys.starved, "wrong")
    put("a", job("id1"))
    assert watch("a") == 1
    assert logged() == [("a", "starved", 1)]


def test_queues_with_a_key_of_a_wrong_type_are_named(put, call, keys, link):
    put("a", job("id1"))
    for key in (keys.queue("b"), keys.held_of("c")):
        call("SET", key, "wrong")
    watched = link.run(maintain.watch_queues(keys, ["a", "b", "c", "d"], most=60))
    assert (watched.starving, watched.wrong) == (1, (keys.queue("b"), keys.queue("c")))


def test_two_hundred_names_are_no_problem(watch):
    assert watch(*(f"n{i}" for i in range(200))) == 0
