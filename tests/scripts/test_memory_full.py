"""With memory full, enqueueing is refused in words, and what pools need goes on and drains the backlog."""

from __future__ import annotations

import pytest

from census import census, dump
from dayjob.errors import Full
from dayjob.outcome import Retried
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from dayjob.store.ops import produce
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.produce import Slot
from dayjob.store.scripts import load
from pools import Pool, fill, jobs_of, set_limit
from scenarios import ALL
from server import running

REFUSED = {
    "add_members",
    "start_workflow",
    "enqueue",
    "enqueue_by_key",
    "schedule",
    "admit",
    "tick",
    "to_bin",
}


@pytest.fixture(scope="module")
def full_server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("full")) as server:
        yield server


@pytest.fixture
def link(full_server, keys):
    """A connection to a server of our own, whose memory is free again in the end."""
    found = Link(addresses.parse_url(full_server.url), tag=keys.known_jobs, name="test")
    yield found
    found.run(plain("CONFIG", "SET", "maxmemory", 0))
    found.close()


@pytest.fixture
def fill_memory(link):
    def go():
        link.run(plain("CONFIG", "SET", "maxmemory", 1))
        with pytest.raises(Full):
            link.run(plain("SET", "anything", "x"))

    return go


def test_a_full_server_refuses_exactly_what_stores_new_work(keys, link, fill_memory):
    ready = {
        name: scenario.ready(Keys(f"{keys.namespace}-{i}"), link)
        for i, (name, scenario) in enumerate(ALL.items())
    }
    fill_memory()
    refused = set()
    for name, op in ready.items():
        try:
            link.run(op)
        except Full:
            refused.add(ALL[name].script)
    assert refused == REFUSED


@pytest.mark.parametrize("name", [name for name, scenario in ALL.items() if scenario.script in REFUSED])
def test_what_is_refused_stores_nothing_and_works_later_under_the_same_number(name, keys, link, fill_memory):
    op = ALL[name].ready(keys, link)
    before = dump(keys, link)
    fill_memory()
    with pytest.raises(Full, match="nothing was stored"):
        link.run(op)
    assert dump(keys, link) == before
    link.run(plain("CONFIG", "SET", "maxmemory", 0))
    link.run(op)
    assert dump(keys, link) != before


def test_a_server_that_never_saw_the_scripts_takes_them_while_it_is_full(keys, link, fill_memory):
    op = ALL["exchange"].ready(keys, link)
    link.run(plain("SCRIPT", "FLUSH"))
    fill_memory()
    assert link.run(op).status == "ok"
    link.run(plain("SCRIPT", "FLUSH"))
    with pytest.raises(Full):
        link.run(produce.enqueue(keys, Slot("s", 1), "a", [b"1"], introduce=True))
    assert link.run(plain("SCRIPT", "EXISTS", load("exchange").sha)) == [0]


def test_a_backlog_drains_while_memory_is_full(keys, link, fill_memory):
    set_limit(keys, link, "a", 7)
    fill(keys, link, "a", *(str(i) for i in range(40)))
    fill_memory()
    pool = Pool(keys, link)
    finished: list[str] = []
    entries: list[Entry] = []
    for _ in range(20):
        reply = pool.exchange(
            "a", room=5, entries=entries, done={"a": finished} if finished else {}, figures={"x": 1}
        )
        tokens = [token for token, _, _ in jobs_of(reply)]
        entries = [Entry("a", token, Retried(1), b"again " + token.encode()) for token in tokens[:1]]
        finished = tokens[1:]
    found = census(keys, link)
    assert (found.queues, found.held, len(found.retry)) == ({}, {}, 8)
