"""The console and its API allow and offer what the table of verbs has, in every state of every target."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any, get_args

import msgspec
import pytest

from dayjob.admin import verbs
from dayjob.admin.verbs import Verb
from dayjob.admin.views import State
from dayjob.errors import BadOption
from dayjob.store.ops import membership

#: Without that of a job that finished, which is stored nowhere.
STATES: tuple[State, ...] = get_args(State)[:-1]
HTML = {"accept": "text/html"}


@pytest.fixture
def put(keys, call, link) -> Callable[[State], str]:
    """Put a job into a state; the answer is its id."""

    def into(state: State) -> str:
        raw = msgspec.json.encode({"name": "mail", "id": f"id-{state}", "t": 1, "args": {}})
        call("SADD", keys.known_jobs, "mail")
        if state == "waiting":
            call("LPUSH", keys.queue("mail"), raw)
        elif state == "running":
            assert link.run(membership.join(keys, "p1", [], lease=60.0, term=1.0)).registered
            call("HSET", keys.held("p1"), "1:mail", raw)
        else:
            call("ZADD", getattr(keys, state), 1 if state == "dead" else 4_000_000_000, raw)
        return f"id-{state}"

    return into


def page(console, path: str, **query: str) -> str:
    answer = console.get(path, params=query, headers=HTML)
    assert answer.status_code == 200, answer.text
    return answer.text


def posts(text: str) -> list[str]:
    """The addresses that the buttons of a page ask."""
    return re.findall(r'data-post="([^"]*)"', text)


@pytest.mark.parametrize("state", STATES)
def test_the_pages_of_a_job_have_the_buttons_that_the_table_offers(console, put, state):
    job_id = put(state)
    expected = [row.name for row in verbs.offered("job", state)]
    own = page(console, "/job", id=job_id)
    assert re.findall(r'data-verb="(\w+)"', own) == expected
    listed = page(
        console, "/jobs" if state in ("waiting", "running") else f"/{state}_jobs", state=state, name="mail"
    )
    assert re.findall(r'data-verb="(\w+)"', listed) == expected
    assert re.findall(r'data-some="(\w+)"', listed) == expected
    for_all = [row.name for row in verbs.offered_for_all(state)]
    assert re.findall(r'data-every="(\w+)"', listed) == for_all
    asks = json.loads(unescape(re.findall(r'data-asks="([^"]*)"', own)[0]))
    assert asks == {row.name: row.effect for row in verbs.rows("job") if row.asks}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("verb", get_args(Verb))
def test_the_api_does_what_the_table_allows_and_refuses_the_rest(console, put, state, verb):
    row = verbs.row("job", verb)
    job_id = put(state)
    answer = console.post(f"/api/v1{row.path}", {"id": job_id, "state": state, "name": "mail"})
    assert answer.status_code == (200 if state in row.states else 409), answer.text
    if answer.status_code == 200:
        assert answer.json()["kind"] == "done"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("verb", get_args(Verb))
def test_all_that_match_can_be_changed_where_the_table_has_it(console, put, state, verb):
    put(state)
    if state in verbs.row("job", verb).bulk:
        assert console.admin.apply(verb, state, where="name=mail").changed == 1
    else:
        with pytest.raises(BadOption):
            console.admin.apply(verb, state, where="name=mail")


@pytest.mark.parametrize("verb", get_args(Verb))
def test_a_state_that_must_be_named_protects_a_job(console, put, verb):
    row = verbs.row("job", verb)
    for state in row.named:
        job_id = put(state)
        act: Any = getattr(console.admin, verb)
        assert act(job_id).kind == "not_allowed"
        assert act(job_id, state=state).kind == "done"


@pytest.mark.parametrize("state", ["open", "paused"])
def test_the_pages_of_a_queue_have_the_buttons_that_the_table_offers(console, put, state):
    put("waiting")
    if state == "paused":
        console.admin.pause("mail")
    offered = verbs.offered("queue", state)
    text = page(console, "/queue", name="mail")
    assert posts(text) == [row.path for row in offered if row.name != "limit"]
    assert text.count("data-limit=") == 1
    assert posts(page(console, "/queues")) == [offered[0].path]


@pytest.mark.parametrize("state", ["running", "quiet", "stopping"])
def test_the_page_of_pools_has_the_buttons_that_the_table_offers(console, link, call, keys, state):
    assert link.run(membership.join(keys, "p1", [], lease=60.0, term=1.0)).registered
    status = {"id": "p1", "host": "box", "quiet": state != "running", "stopping": state == "stopping"}
    call("SET", keys.pool("p1"), msgspec.json.encode(status))
    assert posts(page(console, "/worker_pools")) == [row.path for row in verbs.offered("pool", state)]


@pytest.mark.parametrize("state", ["open", "paused"])
def test_the_page_of_schedules_has_the_buttons_that_the_table_offers(console, call, keys, state):
    call("HSET", keys.periodic, "nightly", 1)
    if state == "paused":
        console.admin.pause_schedule("nightly")
    assert posts(page(console, "/periodic")) == [row.path for row in verbs.offered("schedule", state)]


def test_the_page_of_busy_workers_has_the_buttons_that_the_table_offers(console, link, call, keys):
    assert link.run(membership.join(keys, "p1", [], lease=60.0, term=1.0)).registered
    worker = {"token": "1:mail", "name": "mail", "id": "id-1", "started_at": 1.0}
    call("SET", keys.pool("p1"), msgspec.json.encode({"id": "p1", "host": "box", "workers": [worker]}))
    text = page(console, "/busy_workers")
    assert posts(text) == [row.path for row in verbs.offered("job", "running")]
    assert len(re.findall("data-stack=", text)) == len(verbs.offered("worker", "busy"))


def test_the_page_of_broken_entries_has_the_buttons_that_the_table_offers(console, call, keys):
    call("LPUSH", keys.broken, b"no json")
    text = page(console, "/broken")
    assert posts(text) == [verbs.row("broken", "delete").path]
    assert text.count("data-repair=") == 1
