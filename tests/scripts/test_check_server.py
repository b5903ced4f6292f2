from __future__ import annotations

import pytest

from dayjob.store.link import walk
from dayjob.store.ops import events, maintain


@pytest.fixture
def check(keys, link):
    return lambda seen="": link.run(maintain.check_server(keys, seen))


@pytest.fixture
def logged(keys, link):
    return lambda: walk(link, events.read(keys, ["redis"]))[0]


@pytest.fixture
def run_id(call):
    return call("INFO", "server").decode().partition("run_id:")[2].split()[0]


def test_the_first_look_only_notes_the_server(check, logged, run_id, call, keys):
    assert check() == run_id
    assert check() == run_id
    assert logged() == []
    assert call("HGET", keys.watch, "run") == run_id.encode()


def test_another_run_id_is_logged_once(check, logged, run_id, call, keys):
    call("HSET", keys.watch, "run", "00ff")
    assert check() == run_id
    assert check() == run_id
    ((_, event),) = logged()
    assert event.before == "00ff"
    assert event.after in ("restarted", "another server")


def test_a_server_that_lost_its_data_is_known_by_what_the_caller_saw(check, logged, run_id):
    assert check("00ff") == run_id
    assert len(logged()) == 1
    assert check(run_id) == run_id
    assert len(logged()) == 1
