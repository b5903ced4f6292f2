"""What becomes of the nodes of a workflow, in the scripts that end jobs and in those of operators."""

from __future__ import annotations

import msgspec
import pytest

from dayjob.errors import BadOption
from dayjob.job import Job
from dayjob.outcome import Cancelled, Died, Done, Dropped, GivenBack, Retried
from dayjob.store.link import walk
from dayjob.store.ops import batches, workflows
from dayjob.store.ops.batches import Member, member_of
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.produce import NewJob, Slot, When
from dayjob.store.ops.workflows import AddedNodes, NewNode, NodeList, WorkflowChunk
from pools import Pool, jobs_of

DIED = Died(counts_failure=True)


def node(n, *needs, watches=(), policy="stop"):
    payload = b'{"name":"a","id":"n%d","args":{"membership":["x",1]},"membership":["w1",%d],"at":1}' % (n, n)
    job = NewJob(Job("a", id=f"n{n}"), payload, When(), False, None, None, None, "w1")
    return NewNode(job, needs, tuple(watches), policy=policy)


def listed(nodes, into=None):
    found = into or NodeList()
    for one in nodes:
        found.add(one)
    return found


@pytest.fixture
def pool(keys, link):
    return Pool(keys, link, names=["a"])


@pytest.fixture
def states(keys, link):
    return lambda: walk(link, workflows.read(keys, "w1")).states


@pytest.fixture
def start(keys, link):
    def run(*nodes):
        return link.run(
            workflows.start_workflow(keys, Slot("s", 1), WorkflowChunk("w1", "what", listed(nodes)))
        )

    return run


@pytest.fixture
def to_queue(call, keys):
    """Move released nodes to their queue, as the leader does. Returns their ids."""

    def move():
        found = call("ZRANGE", keys.scheduled, 0, -1)
        call("DEL", keys.scheduled)
        for raw in found:
            call("LPUSH", keys.queue("a"), raw)
        return sorted(msgspec.json.decode(raw)["id"] for raw in found)

    return move


@pytest.fixture
def end(pool, to_queue):
    """Run the released nodes, and end them with these outcomes by number. Returns their ids."""

    def run(outcomes, added=()):
        ids = to_queue()
        entries = []
        for token, _, payload in jobs_of(pool.exchange("a", room=100)):
            number = msgspec.json.decode(payload)["membership"][1]
            member = member_of((("w1",), (number,)), outcomes[number])
            if member is not None and member.fate == "completed":
                member = Member(("w1",), (number,), "completed", b'{"result":%d}' % number, tuple(added))
            entries.append(Entry("a", token, outcomes[number], b"moved", member=member))
        pool.settle(*entries)
        return ids

    return run


def test_a_resend_of_the_start_and_of_an_end_releases_nothing_twice(keys, link, pool, end, states, to_queue):
    op = workflows.start_workflow(
        keys, Slot("s", 1), WorkflowChunk("w1", "what", listed([node(0), node(1, 0)]))
    )
    assert [link.run(op).new for _ in range(2)] == [True, False]
    assert end({0: Done()}) == ["n0"]
    assert to_queue() == ["n1"]
    assert pool.resend().status == "again"
    assert (states(), to_queue()) == ("cr", [])


def test_a_late_outcome_releases_nothing(start, pool, to_queue, states, call, keys):
    start(node(0), node(1, 0))
    to_queue()
    pool.fetch("a")
    call("HDEL", keys.held(pool.id), "1:a")
    assert pool.settle(Entry("a", "1:a", Done(), member=member_of((("w1",), (0,)), Done()))).late == 1
    assert (states(), to_queue()) == ("rw", [])


@pytest.mark.parametrize(
    ("outcome", "policy", "expected"),
    [
        (Done(), "stop", "crs"), (Retried(1), "stop", "fww"), (GivenBack(), "stop", "rww"), (DIED, "stop", "dwr"),
        (DIED, "continue", "nrr"), (DIED, "skip", "ksr"), (Dropped(counts_failure=True), "stop", "dwr"),
        (Dropped(counts_failure=False), "stop", "sss"), (Cancelled(), "continue", "xww"),
    ],
)  # fmt: skip
def test_each_end_of_a_node_decides_what_waits_for_it(start, end, states, outcome, policy, expected):
    start(node(0, policy=policy), node(1, 0), node(2, watches=[0]))
    end({0: outcome})
    assert states() == expected


def test_a_join_waits_for_all_and_is_released_once(start, end, to_queue, states):
    start(node(0), node(1), node(2, 0, 1))
    assert end({0: Done(), 1: Retried(1)}) == ["n0", "n1"]
    assert states() == "cfw"


def test_skipping_reaches_the_end_of_a_branch_and_joins_go_on(start, end, states):
    start(node(0, policy="skip"), node(1, 0), node(2, 1), node(3), node(4, 2, 3))
    end({0: DIED, 3: Done()})
    assert states() == "ksscr"


def test_added_nodes_are_numbered_behind_the_others_in_the_step_that_completes_their_node(
    start, end, states, to_queue
):
    start(node(0), node(1, 0))
    added = listed([node(0), node(1, 0)], AddedNodes())
    end({0: Done()}, added.args())
    assert states() == "crrw"
    assert end({1: Done(), 2: Done()}) == ["n0", "n1"]
    assert states() == "cccr"


def test_a_cancelled_node_takes_what_needs_it_along_and_stays_cancelled(
    start, end, states, keys, link, to_queue
):
    start(node(0), node(1), node(2, 0), node(3, 2))
    answer = link.run(workflows.change_workflow(keys, "w1", "cancel", 0))
    assert (answer.answer, answer.changed) == ("done", 3)
    assert link.run(batches.cancelled(keys)) == {"w1/0"}
    end({0: Done(), 1: Done()})
    assert (states(), to_queue()) == ("xcxx", [])


def test_a_retry_runs_a_node_again_and_then_what_needs_it(start, end, states, keys, link, call, to_queue):
    start(node(0), node(1, 0), node(2, 1))
    end({0: Done()})
    assert link.run(workflows.change_workflow(keys, "w1", "retry", 0)).answer == "busy"
    end({1: DIED})
    assert states() == "cdw"
    call("ZADD", keys.dead, 1, "the dead job")
    answer = link.run(workflows.change_workflow(keys, "w1", "retry", 1, dead=[(1, b"the dead job")]))
    assert (answer.answer, states(), call("ZCARD", keys.dead)) == ("done", "crw", 1)
    end({1: Done()})
    assert end({2: Done()}) == ["n2"]
    assert states() == "ccc"
    assert link.run(workflows.change_workflow(keys, "w1", "retry", 0)).released == 1
    assert (states(), call("HKEYS", keys.workflow_results("w1"))) == ("rww", [])
    assert link.run(workflows.change_workflow(keys, "w1", "retry", 9)).answer == "gone"


def test_a_change_of_what_was_read_meanwhile_is_refused(start, end, states, keys, link, call):
    start(node(0), node(1, 0))
    end({0: DIED})
    call("ZADD", keys.dead, 1, "the dead job")
    answer = link.run(workflows.change_workflow(keys, "w1", "retry", 0, seen="cw"))
    assert (answer.answer, states()) == ("moved", "dw")
    # The dead job of a node that is not retried stays.
    link.run(workflows.change_workflow(keys, "w1", "retry", 0, seen="dw", dead=[(5, b"the dead job")]))
    assert (states(), call("ZCARD", keys.dead)) == ("rw", 2)


def test_a_node_is_corrected_by_where_its_job_is(start, end, states, keys, link):
    start(node(0), node(1, 0), node(2, policy="continue"), node(3, 2))

    def correct(what, n):
        return link.run(workflows.change_workflow(keys, "w1", what, n, seen=states())).answer

    assert (correct("lost", 0), states()) == ("done", "xwrw")
    assert (correct("died", 2), states()) == ("done", "xwnr")
    assert (correct("alive", 2), states()) == ("done", "xwrr")
    assert [correct("lost", 0), correct("died", 1), correct("alive", 3)] == ["ended"] * 3
    assert states() == "xwrr"


def test_a_correction_of_a_node_that_moved_meanwhile_is_refused(start, end, states, keys, link):
    start(node(0), node(1, 0))
    end({0: Retried(1)})
    answer = link.run(workflows.change_workflow(keys, "w1", "lost", 0, seen="rw"))
    assert (answer.answer, states()) == ("moved", "fw")


def test_a_workflow_has_bounds_for_nodes_bytes_and_what_a_node_adds():
    full = NodeList()
    for n in range(workflows.MAX_NODES):
        full.add(node(n))
    with pytest.raises(BadOption, match="at most 2,000 nodes"):
        full.add(node(workflows.MAX_NODES))
    added = AddedNodes()
    for n in range(workflows.MAX_ADDED):
        added.add(node(n))
    with pytest.raises(BadOption, match="at most 500 nodes"):
        added.add(node(workflows.MAX_ADDED))
    large = NodeList()
    for n in range(4):
        one = node(n)
        large.add(
            msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, payload=b"x" * (1 << 20)))
        )
    with pytest.raises(BadOption, match="4,194,304 bytes"):
        large.add(node(4))
    wide = listed([node(0), *(node(n, 0) for n in range(1, workflows.MAX_EDGES + 1))])
    with pytest.raises(BadOption, match="put nodes between"):
        wide.add(node(workflows.MAX_EDGES + 1, 0))


def test_an_operator_skips_a_dead_node_and_the_workflow_ends(start, end, states, keys, link):
    start(node(0), node(1), node(2, 0, 1))
    end({0: DIED, 1: Done()})
    assert states() == "dcw"
    assert link.run(workflows.change_workflow(keys, "w1", "skip", 1)).answer == "ended"
    assert link.run(workflows.change_workflow(keys, "w1", "skip", 0)).answer == "done"
    assert states() == "scr"
    end({2: Done()})
    assert walk(link, workflows.read(keys, "w1")).state == "succeeded"


def test_a_check_releases_what_was_lost(start, states, keys, link, call, to_queue):
    start(node(0), node(1, 0))
    call("SET", keys.workflow_states("w1"), "cw")
    assert link.run(workflows.change_workflow(keys, "w1", "check")).released == 1
    assert "n1" in to_queue()


@pytest.mark.parametrize("key", ["workflow", "workflow_states", "workflow_results", "workflow_nodes"])
def test_a_key_of_a_wrong_type_fails_no_exchange(start, pool, to_queue, call, keys, key):
    start(node(0), node(1, 0))
    to_queue()
    pool.fetch("a")
    name = getattr(keys, key)("w1")
    call("DEL", name)
    call("LPUSH", name, "x")
    reply = pool.settle(Entry("a", "1:a", Done(), member=member_of((("w1",), (0,)), Done())))
    assert (reply.status, reply.stuck, reply.held) == ("ok", [], 0)


def test_an_end_waits_while_nothing_can_be_released(start, pool, to_queue, call, keys, states):
    start(node(0), node(1, 0))
    to_queue()
    pool.fetch("a")
    call("SET", keys.scheduled, "x")
    entry = Entry("a", "1:a", Done(), member=member_of((("w1",), (0,)), Done()))
    assert pool.settle(entry).stuck == ["1:a"]
    call("DEL", keys.scheduled)
    assert pool.settle(entry).stuck == []
    assert states() == "cr"
