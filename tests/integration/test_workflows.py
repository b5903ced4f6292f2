"""Workflows: a node is released once, when what it needs has ended, with the results that it takes."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest

import dayjob
from dayjob import Job
from dayjob.admin.client import Admin
from dayjob.errors import BadArguments, BadOption, NotReady
from dayjob.store.link import walk
from dayjob.store.ops import workflows
from server import wait_until


@dataclass
class Page:
    url: str
    size: int


class Program:
    """A pool whose jobs note what they were given, and fail if the test asks for it."""

    def __init__(self, pool):
        self.pool = pool
        self.ran = []
        self.acts = {}
        self.lock = threading.Lock()

        def note(what):
            with self.lock:
                self.ran.append(what)
            act = self.acts.get(what if isinstance(what, str) else what[0])
            if act is not None:
                act()

        @pool.job(max_fails=1)
        def fetch(url: str) -> Page:
            note("fetch")
            return Page(url, 3)

        @pool.job(max_fails=1)
        async def parse(page: Page | None, part: int = 0) -> int:
            note(("parse", part, None if page is None else page.url))
            return part * 10

        @pool.job(max_fails=1)
        def store(rows: list[int | None]) -> str:
            note(("store", tuple(rows)))
            return "stored"

        @pool.job(max_fails=1)
        def alarm() -> None:
            note("alarm")

        @pool.job(max_fails=1)
        def step(n: int) -> int:
            note(("step", n))
            return n + 1

        self.note, self.fetch, self.parse, self.store = note, fetch, parse, store
        self.alarm, self.step = alarm, step

    def names(self):
        with self.lock:
            return [one if isinstance(one, str) else one[0] for one in self.ran]


@pytest.fixture
def program(new_pool):
    return Program(new_pool(concurrency=4, beat=0.2, lease=5.0))


@pytest.fixture
def admin(namespace, redis_url):
    with Admin(namespace, redis=redis_url, actor="test") as found:
        yield found


def fail():
    raise dayjob.Dead("no")


def fan(program, **options):
    flow = program.pool.workflow("import", source="acme")
    page = flow.add(program.fetch, url="u", **options)
    parts = [flow.add(program.parse, page=page.result, part=n) for n in range(8)]
    last = flow.add(program.store, rows=[part.result for part in parts])
    flow.add(program.alarm, on_failure_of=[page, *parts])
    return flow, page, parts, last


def ended(flow, state="succeeded"):
    def check():
        found = flow.progress()
        return found.state == state and (found.left == 0 or state == "failed")

    wait_until(check)


def test_nodes_run_when_what_they_need_has_completed_and_get_its_results(program, look):
    flow, page, parts, last = fan(program)
    with pytest.raises(NotReady):
        flow.progress()
    flow.start()
    assert flow.progress().left == 11
    with program.pool:
        ended(flow)
        assert program.pool.drain(60)
    assert program.names()[0] == "fetch"
    assert sorted(program.ran[1:9]) == [("parse", n, "u") for n in range(8)]
    assert program.ran[9:] == [("store", tuple(range(0, 80, 10)))]
    progress = flow.progress()
    assert (progress.total, progress.completed, progress.skipped, progress.left) == (11, 10, 1, 0)
    assert flow.result(page) == Page("u", 3)
    assert flow.result(parts[2]) == 20
    assert flow.result(last) == "stored"


def test_a_chain_passes_each_result_on(program):
    chain = program.step.then(program.step).then(program.step)
    flow = chain.enqueue(n=1)
    with program.pool:
        ended(flow)
        again = asyncio.run(_enqueued(chain))
        ended(again)
    assert program.ran == [("step", n) for n in (1, 2, 3, 7, 8, 9)]


async def _enqueued(chain):
    return await chain.aenqueue(7)


def test_a_dead_node_stops_what_needs_it_until_it_is_retried(program, admin, look):
    program.acts["fetch"] = fail
    flow, page, *_ = fan(program)
    flow.start()
    with program.pool:
        wait_until(lambda: program.names() == ["fetch", "alarm"])
        ended(flow, "failed")
        del program.acts["fetch"]
        (dead,) = look.dead()
        assert dead["id"] == page.id
        admin.retry(dead["id"])
        ended(flow)
        assert program.pool.drain(60)
    assert program.names().count("fetch") == 2
    assert program.names().count("parse") == 8
    assert program.names().count("store") == program.names().count("alarm") == 1


def test_a_node_may_let_others_go_on_or_be_skipped_when_it_fails(program):
    program.acts["fetch"] = fail
    goes_on, *_ = fan(program, on_failure="continue")
    skips, *_ = fan(program, on_failure="skip")
    flow = program.pool.workflow("join")
    bad = flow.add(program.fetch, url="u", on_failure="skip")
    branch = flow.add(program.parse, page=bad.result, part=1)
    other = flow.add(program.step, n=4)
    flow.add(program.store, rows=[branch.result, other.result])
    for one in (goes_on, skips, flow):
        one.start()
    with program.pool:
        for one in (goes_on, skips, flow):
            ended(one)
        assert program.pool.drain(60)
    assert program.ran.count(("parse", 3, None)) == 1
    assert program.ran.count(("store", tuple(range(0, 80, 10)))) == 1
    assert program.ran.count(("store", (None, 5))) == 1
    assert program.names().count("alarm") == 2
    assert (skips.progress().skipped, skips.progress().dead) == (9, 1)


def test_a_running_node_adds_nodes_with_its_completion_and_only_then(new_pool, look):
    pool = new_pool(concurrency=2)
    ran, fails = [], [1]

    @pool.job
    def leaf(n: int) -> int:
        ran.append(n)
        return n

    @pool.job
    def total(all_of: list[int]) -> int:
        ran.append(sum(all_of))
        return sum(all_of)

    @pool.job(backoff=0.0)
    def split(job: Job) -> None:
        parts = [job.workflow.add(leaf, n=n) for n in (1, 2, 3)]
        job.workflow.add(total, all_of=[part.result for part in parts])
        if fails:
            raise ValueError(fails.pop())

    flow = pool.workflow("grows")
    first = flow.add(split)
    flow.add(leaf, n=10, after=[first])
    flow.start()
    with pool:
        ended(flow)
        assert pool.drain(60)
    assert sorted(ran) == [1, 2, 3, 6, 10]
    assert flow.progress().total == 6


def test_a_node_that_discards_itself_leaves_its_branch_out(program):
    def discard():
        raise dayjob.Discard

    program.acts["fetch"] = discard
    flow, *_ = fan(program)
    flow.start()
    with program.pool:
        ended(flow)
    assert program.names() == ["fetch"]
    assert flow.progress().skipped == 11


def test_a_deleted_node_stops_its_workflow_and_an_undo_lets_it_go_on(program, admin):
    flow, page, *_ = fan(program)
    flow.start()
    admin.delete(page.id)
    assert (flow.progress().state, flow.progress().cancelled) == ("failed", 1)
    (deletion,) = admin.bin()
    admin.undo(deletion.id)
    assert flow.progress().state == "running"
    with program.pool:
        ended(flow)
    assert program.names().count("parse") == 8


def to_queue(call, keys, deaths=0):
    """Move the released node to its queue, as the leader does."""
    raw, _ = call("ZPOPMIN", keys.scheduled)
    call("LPUSH", keys.queue("fetch"), raw.replace(b'{"name"', b'{"deaths":%d,"name"' % deaths))


def test_a_node_whose_process_crashed_runs_again_and_releases_others_once(program, new_ghost, call, keys):
    flow, *_ = fan(program)
    flow.start()
    to_queue(call, keys)
    assert len(new_ghost().take("fetch")) == 1
    with program.pool:
        ended(flow)
        assert program.pool.drain(60)
    assert program.names().count("fetch") == program.names().count("store") == 1
    assert program.names().count("parse") == 8


def test_a_node_whose_process_crashes_three_times_is_dead_in_its_workflow(program, new_ghost, call, keys):
    flow, *_ = fan(program)
    flow.start()
    to_queue(call, keys, deaths=2)
    ghost = new_ghost()
    ((token, _),) = ghost.take("fetch")
    ghost.suspect(token)
    with program.pool:
        ended(flow, "failed")
        wait_until(lambda: program.names() == ["alarm"])
    assert flow.progress().dead == 1


def test_a_cancelled_workflow_runs_nothing_more(program):
    gate, started = threading.Event(), threading.Event()

    def wait():
        started.set()
        gate.wait(60)

    program.acts["fetch"] = wait
    flow, *_ = fan(program)
    flow.start()
    with program.pool:
        assert started.wait(60)
        assert flow.cancel()
        assert not flow.cancel()
        gate.set()
        assert program.pool.drain(60)
    assert program.names() == ["fetch"]
    progress = flow.progress()
    assert (progress.state, progress.cancelled, progress.left) == ("cancelled", 11, 0)


def test_a_result_beyond_the_limit_fails_its_node(new_pool, look):
    pool = new_pool()

    @pool.job(max_fails=1)
    def large() -> str:
        return "x" * (64 << 10)

    flow = pool.workflow("large")
    flow.add(large)
    flow.start()
    with pool:
        ended(flow, "failed")
    assert "65,549 bytes" in look.dead()[0]["err"]
    assert "65,536" in look.dead()[0]["err"]


def test_what_cannot_be_a_workflow_is_refused_before_anything_is_stored(program, look, keys):
    pool = program.pool
    flow, other = pool.workflow("a"), pool.workflow("b")
    node = flow.add(program.step, n=1)
    with pytest.raises(BadArguments, match="n"):
        flow.add(program.step, n="one")
    with pytest.raises(BadArguments, match="part"):
        flow.add(program.parse, page=node.result, part="one")
    with pytest.raises(BadArguments, match="unexpected argument 'size'"):
        flow.add(program.parse, page=node.result, size=3)
    with pytest.raises(BadOption, match="another workflow"):
        other.add(program.step, n=node.result)
    with pytest.raises(BadOption, match="on_failure"):
        flow.add(program.step, n=1, on_failure="ignore")
    with pytest.raises(BadOption, match="choose one"):
        flow.add(program.step, n=node.result, on_failure_of=[node])
    with pytest.raises(BadOption, match="using"):
        flow.add(program.step.using(expires=5), n=1)
    with pytest.raises(BadOption, match="no nodes"):
        other.start()
    with pool.batch(), pytest.raises(BadOption, match="batch"):
        flow.start()
    many = [flow.add(program.step, n=n) for n in range(501)]
    with pytest.raises(BadOption, match="at most 500"):
        flow.add(program.alarm, after=many)
    assert look.members(keys.scheduled) == []


def test_the_states_of_nodes_and_their_edges_are_stored(program, link, keys):
    flow, *_ = fan(program)
    flow.start()
    stored = walk(link, workflows.read(keys, flow.id))
    assert (stored.name, stored.states, stored.state) == ("import", "rwwwwwwwwww", "running")
    nodes = walk(link, workflows.read_nodes(keys, stored))
    assert [node.name for node in nodes] == ["fetch", *["parse"] * 8, "store", "alarm"]
    assert nodes[9].needs == tuple(range(1, 9))
    assert nodes[10].watches == tuple(range(9))
