"""Workflows, in any order of ends, retries, skips and cancels, against a plain list of states.

After each step the states are those of the model, and exactly those nodes were released that the model released. A node that
waits has a reason: the model asks all nodes, while the scripts ask only those that need what has ended. DAYJOB_PROOF=full walks
much farther.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from dayjob.job import Job
from dayjob.outcome import Died, Done, Dropped, Retried
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.op import plain
from dayjob.store.ops import workflows
from dayjob.store.ops.batches import Member, member_of
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.produce import NewJob, Slot, When
from dayjob.store.ops.workflows import POLICIES, AddedNodes, NewNode, NodeList, WorkflowChunk
from pools import Pool, jobs_of
from server import running

FULL = os.environ.get("DAYJOB_PROOF") == "full"
DIED = {"stop": "d", "continue": "n", "skip": "k"}
OUTCOMES = {
    "completed": Done(), "dead": Died(counts_failure=True), "discarded": Dropped(counts_failure=False), "failed": Retried(1),
}  # fmt: skip


def new_node(n, needs=(), watches=(), policy="stop"):
    payload = b'{"name":"a","id":"n%d","args":{},"membership":["w1",%d],"at":1}' % (n, n)
    job = NewJob(Job("a", id=f"n{n}"), payload, When(), False, None, None, None, "w1")
    return NewNode(job, tuple(sorted(needs)), tuple(sorted(watches)), policy=policy)


@dataclass
class ModelNode:
    needs: set[int]
    watches: set[int]
    policy: str
    state: str = "w"


class WorkflowMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self):
        super().__init__()
        self.keys = Keys(f"flow{secrets.token_hex(6)}")
        self.link = Link(addresses.parse_url(self.url), tag=self.keys.known_jobs)
        self.pool = Pool(self.keys, self.link, names=["a"])
        self.nodes: list[ModelNode] = []

    def teardown(self):
        self.link.close()

    # The model.

    def verdict(self, node):
        needs = [self.nodes[n].state for n in node.needs]
        watched = [self.nodes[n].state for n in node.watches]
        failed = any(state in "dnk" for state in watched)
        if any(state in "wrfdx" for state in needs):
            return ""
        if watched and not failed:
            return "s" if all(state in "cs" for state in watched) else ""
        return "s" if needs and not failed and all(state in "sk" for state in needs) else "r"

    def settle(self):
        """Release or skip whatever can go on, of all nodes."""
        going = True
        while going:
            going = False
            for node in self.nodes:
                verdict = self.verdict(node) if node.state == "w" else ""
                if verdict:
                    node.state, going = verdict, True

    def below(self, first, *, again=False):
        found = [first]
        for n in found:
            for m, node in enumerate(self.nodes):
                follows = n in node.needs or (n in node.watches and (not again or node.state == "s"))
                if follows and m not in found:
                    found.append(m)
        return found

    def expect(self, before):
        """Compare the states, and what was released, with the model. Jobs of cancelled nodes are dropped at once."""
        stored = walk(self.link, workflows.read(self.keys, "w1"))
        assert stored.states == "".join(node.state for node in self.nodes)
        raw = self.link.run(plain("ZRANGE", self.keys.scheduled, 0, -1))
        self.link.run(plain("DEL", self.keys.scheduled))
        released = sorted(msgspec.json.decode(one)["membership"][1] for one in raw)
        states = [*before, *["w"] * (len(self.nodes) - len(before))]
        assert released == [
            n for n, node in enumerate(self.nodes) if node.state == "r" and states[n] not in "rf"
        ]

    def states(self):
        return [node.state for node in self.nodes]

    # What happens.

    @initialize(
        shape=st.lists(
            st.tuples(
                st.sets(st.integers(0, 8), max_size=3),
                st.sets(st.integers(0, 8), max_size=2),
                st.sampled_from(POLICIES),
            ),
            min_size=1,
            max_size=9,
        )
    )
    def start(self, shape):
        listed = NodeList()
        for n, (some, others, policy) in enumerate(shape):
            needs = {m for m in some if m < n}
            watches = {m for m in others if m < n} - needs
            self.nodes.append(ModelNode(needs, watches, policy))
            listed.add(new_node(n, needs, watches, policy))
        op = workflows.start_workflow(self.keys, Slot("s", 1), WorkflowChunk("w1", "what", listed))
        assert [self.link.run(op).new for _ in range(2)] == [True, False]
        self.settle()
        self.expect("w" * len(self.nodes))

    @rule(
        pick=st.integers(0, 20),
        how=st.sampled_from([*OUTCOMES, "completed"]),
        adds=st.booleans(),
        again=st.booleans(),
    )
    def end(self, pick, how, adds, again):
        """A released node ends, or fails and runs again; the outcome may be sent twice."""
        released = [n for n, node in enumerate(self.nodes) if node.state in "rf"]
        if not released:
            return
        n, before = released[pick % len(released)], self.states()
        payload = self.link.run(plain("HGET", self.keys.workflow_nodes("w1"), n))
        self.link.run(plain("LPUSH", self.keys.queue("a"), payload))
        ((token, _, _),) = jobs_of(self.pool.exchange("a", room=1))
        member = member_of((("w1",), (n,)), OUTCOMES[how])
        added = AddedNodes()
        if how == "completed":
            if adds and len(self.nodes) < 20:
                first = len(self.nodes)
                added.add(new_node(0))
                added.add(new_node(1, (0,)))
                self.nodes += [ModelNode(set(), set(), "stop"), ModelNode({first}, set(), "stop")]
            member = Member(("w1",), (n,), "completed", b'{"result":1}', added.args())
        self.pool.settle(Entry("a", token, OUTCOMES[how], b"moved", member=member))
        if again:
            assert self.pool.resend().status == "again"
        ends = {"completed": "c", "dead": DIED[self.nodes[n].policy], "discarded": "s", "failed": "f"}
        self.nodes[n].state = ends[how]
        self.settle()
        self.expect(before)

    @rule(pick=st.integers(-1, 20))
    def cancel(self, pick):
        before, number = self.states(), min(pick, len(self.nodes) - 1)
        self.link.run(workflows.change_workflow(self.keys, "w1", "cancel", number))
        for n in range(len(self.nodes)) if number < 0 else self.below(number):
            if self.nodes[n].state in "wrf":
                self.nodes[n].state = "x"
        self.expect(before)

    @rule(pick=st.integers(-1, 20))
    def retry(self, pick):
        before, number = self.states(), min(pick, len(self.nodes) - 1)
        firsts = [number] if number >= 0 else [n for n, state in enumerate(before) if state in "dx"]
        found = {n for first in firsts for n in self.below(first, again=True)}
        answer = self.link.run(
            workflows.change_workflow(self.keys, "w1", "retry", number, seen="".join(before))
        )
        busy = any(before[n] in "rf" for n in found)
        assert answer.answer == ("busy" if busy else "done")
        if not busy:
            for n in found:
                self.nodes[n].state = "w"
            self.settle()
        self.expect("".join("w" if n in found and not busy else state for n, state in enumerate(before)))

    @rule(pick=st.integers(0, 20))
    def skip(self, pick):
        before, number = self.states(), min(pick, len(self.nodes) - 1)
        answer = self.link.run(workflows.change_workflow(self.keys, "w1", "skip", number))
        state = before[number]
        assert answer.answer == ("done" if state in "wdx" else "busy" if state in "rf" else "ended")
        if answer.answer == "done":
            self.nodes[number].state = "s"
            self.settle()
        self.expect(before)

    @invariant()
    def a_check_finds_nothing_to_release(self):
        if self.nodes:
            assert self.link.run(workflows.change_workflow(self.keys, "w1", "check")).released == 0


@pytest.mark.timeout(6 * 3600 if FULL else 240)
def test_any_history_releases_each_node_once_for_the_states_that_it_needs(tmp_path):
    """A failure is shrunk to the fewest steps, and printed as a program."""
    with running(tmp_path) as server:
        WorkflowMachine.url = server.url
        run_state_machine_as_test(
            WorkflowMachine,
            settings=settings(
                max_examples=5000 if FULL else 60, stateful_step_count=60 if FULL else 25, deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
