"""Batches inside one another, in any order of ends, retries, deaths of pools and actions of operators, against a plain tree.

What a batch comes to is a function of its members: the model says so of the whole tree, while the scripts follow the one member that
changed. After each step the bitmaps are those of the model, and exactly those callbacks were enqueued that the step made due.
DAYJOB_PROOF=full walks much farther.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from dayjob.job import Job
from dayjob.outcome import Died, Done, Dropped, GivenBack, Reaped, Retried, Unreadable
from dayjob.store import addresses, codec
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.op import plain
from dayjob.store.ops import batches, inspect, maintain, operate
from dayjob.store.ops.batches import MemberChunk, NewBatch, member_of
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.member_groups import MemberGroup
from dayjob.store.ops.produce import NewJob, Slot, When
from pools import Pool, jobs_of
from server import running

FULL = os.environ.get("DAYJOB_PROOF") == "full"
EVENTS = ("success", "complete", "dead")
#: Each batch, and the one that it is in.
TREE = {"top": "", "left": "top", "right": "top", "low": "left"}
OUTCOMES = {
    "completed": Done(), "discarded": Dropped(counts_failure=False), "dead": Died(counts_failure=True),
    "expired": Dropped(counts_failure=True), "unreadable": Unreadable(), "failed": Retried(1), "back": GivenBack(),
}  # fmt: skip
#: What an outcome makes of a member; the others leave it as it is.
MAKES = {
    "completed": "completed", "discarded": "completed", "dead": "dead", "expired": "dead", "unreadable": "dead", "failed": "failed",
}  # fmt: skip


@dataclass
class ModelBatch:
    #: A member is "open", "failed", "completed" or "dead", or the name of the batch that it is.
    members: list[str] = field(default_factory=list)
    closed: bool = False
    cancelled: bool = False
    sent: set[str] = field(default_factory=set)


class BatchMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self):
        super().__init__()
        self.keys = Keys(f"batch{secrets.token_hex(6)}")
        self.link = Link(addresses.parse_url(self.url), tag=self.keys.known_jobs)
        self.pool = Pool(self.keys, self.link, names=["a"])
        self.known: dict[str, ModelBatch] = {}
        self.requests = 0
        #: Payloads that an operator may retry.
        self.dead: list[bytes] = []

    def teardown(self):
        self.link.close()

    # The model.

    def state(self, member):
        """What a member has come to, be it a job or a batch."""
        if member not in TREE:
            return member
        one = self.known[member]
        states = [self.state(inner) for inner in one.members]
        if not one.closed or any(state in ("open", "failed") for state in states):
            return "open"
        return "dead" if one.cancelled or "dead" in states else "completed"

    def due(self, name):
        """The events that have happened by now, of those that were not before."""
        one, found = self.known[name], set()
        states = [self.state(inner) for inner in one.members]
        ended = self.state(name)
        if "dead" in states:
            found.add("dead")
        if ended != "open":
            found.add("complete")
        if ended == "completed":
            found.add("success")
        new = found - one.sent
        one.sent |= new
        return {f"{name}-{event}" for event in new}

    def expect(self):
        """Compare bitmaps, states and callbacks with the model."""
        raw = self.link.run(plain("ZRANGE", self.keys.scheduled, 0, -1))
        self.link.run(plain("DEL", self.keys.scheduled))
        called = sorted(msgspec.json.decode(one)["id"] for one in raw)
        assert called == sorted(one for name in self.known for one in self.due(name))
        for name, one in self.known.items():
            stored = walk(self.link, batches.read(self.keys, name))
            states = [self.state(inner) for inner in one.members]
            assert stored.total == len(states)
            assert (stored.dead, stored.failed) == (states.count("dead"), states.count("failed"))
            assert stored.ended == states.count("dead") + states.count("completed")
            assert (stored.ended_at is not None) == (self.state(name) != "open")
            assert set(stored.sent) == one.sent

    def note(self, payload, state):
        (ids, numbers) = codec.membership(codec.read(payload))
        self.known[ids[0]].members[numbers[0]] = state

    # What happens.

    def add(self, name, count, *, new=False, closes=False):
        """Store members twice: the second request is a resend."""
        self.requests += 1
        above = []
        upper = TREE[name]
        while upper:
            above.append(upper)
            upper = TREE[upper]
        jobs = []
        for n in range(count):
            job_id = f"j{self.requests}-{n}"
            payload = f'{{"name":"a","id":"{job_id}","args":{{}},"membership":["{name}",0],"at":1}}'.encode()
            jobs.append(NewJob(Job("a", id=job_id), payload, When(), False, None, None, name))
        callbacks = {
            event: b'{"name":"called","id":"%b-%b"}' % (name.encode(), event.encode()) for event in EVENTS
        }
        content = NewBatch(name, callbacks) if new else None
        # A batch that exists knows those above it; only its creation, and its close, pass them.
        chunk = MemberChunk(jobs, (name, *above), content, closes=closes)
        op = batches.add_members(self.keys, Slot("s", self.requests), chunk)
        first = self.link.run(op)
        if first.stored:
            assert not self.link.run(op).new
        return first.stored

    def create(self, name, count, closed):
        assert self.add(name, count, new=True, closes=closed)
        self.known[name] = ModelBatch(["open"] * count, closed)
        if TREE[name]:
            self.known[TREE[name]].members.append(name)

    @initialize(count=st.integers(0, 3))
    def begin(self, count):
        self.create("top", count, closed=False)
        self.expect()

    @rule(
        pick=st.sampled_from([name for name in TREE if name != "top"]),
        count=st.integers(0, 3),
        closed=st.booleans(),
    )
    def nest(self, pick, count, closed):
        """A batch begins inside the block of another one, which is open then."""
        upper = TREE[pick]
        if pick in self.known or upper not in self.known or self.known[upper].closed:
            return
        self.create(pick, count, closed)
        self.expect()

    @rule(pick=st.integers(0, 3), count=st.integers(0, 3), closes=st.booleans())
    def join(self, pick, count, closes):
        """More members join a batch, and its block may end. Nothing joins one that has ended."""
        name = list(self.known)[pick % len(self.known)]
        one = self.known[name]
        ended = self.state(name) != "open"
        assert self.add(name, count, closes=closes) == (not ended)
        if not ended:
            one.members += ["open"] * count
            one.closed |= closes
        self.expect()

    def fetched(self, room):
        return jobs_of(self.pool.exchange("a", room=room))

    def settle(self, token, payload, how):
        outcome = OUTCOMES[how]
        member = member_of(codec.membership(codec.read(payload)), outcome)
        return Entry("a", token, outcome, payload, member=member)

    def settled(self, payload, how):
        """Note what an outcome made of a member, and make ready what can run again."""
        if how in MAKES:
            self.note(payload, MAKES[how])
        if how == "dead":
            self.dead.append(payload)
        if how == "failed":
            self.link.run(plain("DEL", self.keys.retry))
            self.link.run(plain("LPUSH", self.keys.queue("a"), payload))

    @rule(hows=st.lists(st.sampled_from(sorted(OUTCOMES)), min_size=1, max_size=3), again=st.booleans())
    def end(self, hows, again):
        """Some attempts end in one request, which may be sent twice."""
        jobs = self.fetched(len(hows))
        entries = [self.settle(token, raw, how) for (token, _, raw), how in zip(jobs, hows, strict=False)]
        self.pool.settle(*entries)
        if again:
            assert self.pool.resend().status == "again"
        for (_, _, raw), how in zip(jobs, hows, strict=False):
            self.settled(raw, how)
        self.expect()

    @rule(count=st.integers(1, 6), lost=st.integers(-1, 5))
    def complete_together(self, count, lost):
        """Plain completions go in groups by batch. An attempt that Redis does not hold any more completes nothing."""
        jobs = self.fetched(count)
        gone = jobs[lost] if 0 <= lost < len(jobs) else None
        if gone:
            self.link.run(plain("HDEL", self.keys.held(self.pool.id), gone[0]))
        groups = {}
        for token, _, raw in jobs:
            (ids, numbers) = codec.membership(codec.read(raw))
            places, tokens = groups.setdefault((ids, numbers[1:]), ([], []))
            places.append(numbers[0])
            tokens.append(token)
        members = [
            MemberGroup(ids, up, places, {"a": tokens}) for (ids, up), (places, tokens) in groups.items()
        ]
        assert self.pool.exchange(members=members).late == bool(gone)
        for job in jobs:
            if job is not gone:
                self.note(job[2], "completed")
        if gone:
            self.link.run(plain("LPUSH", self.keys.queue("a"), gone[2]))
        self.expect()

    @rule(count=st.integers(1, 4), fatal=st.booleans())
    def pool_dies(self, count, fatal):
        """A pool dies with what it runs. Two leaders sweep it."""
        jobs = self.fetched(count)
        self.link.run(maintain.condemn(self.keys, lease=15.0, proven=[self.pool.id], judge=False))
        entries = [
            self.settle(token, raw, "dead") if fatal else Entry("a", token, Reaped(), raw)
            for token, _, raw in jobs
        ]
        for _ in range(2):
            self.link.run(maintain.sweep(self.keys, self.pool.id, entries))
        for _, _, raw in jobs if fatal else ():
            self.settled(raw, "dead")
        self.pool = Pool(self.keys, self.link, names=["a"])
        self.expect()

    @rule(pick=st.integers(0, 20))
    def retry(self, pick):
        """An operator retries a dead member, which opens its batch and those above it."""
        if not self.dead:
            return
        payload = self.dead.pop(pick % len(self.dead))
        op = operate.revive(self.keys, payload, now=self.link.run(inspect.now()))
        assert [self.link.run(op).fate for _ in range(2)] == ["moved", "gone"]
        self.note(payload, "open")
        self.expect()

    @rule(pick=st.integers(0, 3), what=st.sampled_from(["cancel", "close", "check"]))
    def operate(self, pick, what):
        name = list(self.known)[pick % len(self.known)]
        one = self.known[name]
        about = walk(self.link, batches.read(self.keys, name))
        changed = self.link.run(batches.change_batch(self.keys, about, what))
        assert changed == {"cancel": not one.cancelled, "close": not one.closed, "check": True}[what]
        if what == "cancel":
            one.cancelled = one.closed = True
        if what == "close":
            one.closed = True
        self.expect()


@pytest.mark.timeout(6 * 3600 if FULL else 240)
def test_any_history_of_members_calls_back_once_for_each_event(tmp_path):
    """A failure is shrunk to the fewest steps, and printed as a program."""
    with running(tmp_path) as server:
        BatchMachine.url = server.url
        run_state_machine_as_test(
            BatchMachine,
            settings=settings(
                max_examples=5000 if FULL else 60, stateful_step_count=60 if FULL else 25, deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
