"""Workflows: nodes that are released as jobs when the nodes they need have ended, and what operators do with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from dayjob.errors import BadOption
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op, texts
from dayjob.store.ops.batches import PAGE, workflow_keys
from dayjob.store.ops.produce import NewJob, Slot, Stored
from dayjob.store.scripts import load
from dayjob.store.steps import Steps, ask, ask_all

#: How many nodes one node may need, and how many may need it.
MAX_EDGES = 500
#: How many nodes a workflow may have when it starts, and bytes. A script blocks the server while it runs.
MAX_NODES = 2000
MAX_BYTES = 4 << 20
#: How many nodes one node may add while it runs.
MAX_ADDED = 500
#: How many nodes one read brings.
NODES_AT_ONCE = 200
#: Longest result of a node, in bytes.
MAX_RESULT = 64 << 10

#: What the failure of a node does: what needs it waits, goes on without its result, or is skipped.
FailurePolicy = Literal["stop", "continue", "skip"]
POLICIES: tuple[str, ...] = get_args(FailurePolicy)
_POLICY_LETTERS = {"stop": "", "continue": "c", "skip": "s"}

NodeState = Literal["waiting", "released", "failed", "completed", "dead", "skipped", "cancelled"]
_STATES: Mapping[str, NodeState] = {
    "w": "waiting", "r": "released", "f": "failed", "c": "completed", "d": "dead", "n": "dead", "k": "dead",
    "s": "skipped", "x": "cancelled",
}  # fmt: skip
WorkflowState = Literal["running", "failed", "cancelled", "succeeded"]


class NewNode(msgspec.Struct):
    """A node that is not stored yet. Numbers count from the first node that is stored with it."""

    job: NewJob
    #: The nodes that it needs, those whose failure it waits for, and those that need it.
    needs: tuple[int, ...] = ()
    watches: tuple[int, ...] = ()
    out: list[str] = msgspec.field(default_factory=list)
    policy: FailurePolicy = "stop"

    def args(self) -> tuple[bytes | str, ...]:
        """The node as scripts read it."""
        needs = " ".join((*map(str, self.needs), *(f"!{n}" for n in self.watches)))
        return self.job.payload, needs, " ".join(self.out), _POLICY_LETTERS[self.policy]


class NodeList:
    """Nodes that are stored together, with their edges."""

    def __init__(self, most: int = MAX_NODES) -> None:
        self.nodes: list[NewNode] = []
        self._most = most
        self._size = 0

    def add(self, node: NewNode) -> None:
        """Add a node. Raises BadOption if there are too many nodes, edges or bytes."""
        name = node.job.job.name
        if len(self.nodes) >= self._most:
            raise BadOption(
                f"a workflow can be given at most {self._most:,} nodes at once: {name!r} is one more"
            )
        if len(node.needs) + len(node.watches) > MAX_EDGES:
            count = len(node.needs) + len(node.watches)
            raise BadOption(
                f"node {name!r} needs {count:,} other nodes, at most {MAX_EDGES} are allowed: join them in several nodes"
            )
        for marks, numbers in (("", node.needs), ("!", node.watches)):
            for n in numbers:
                if len(self.nodes[n].out) >= MAX_EDGES:
                    raise BadOption(
                        f"more than {MAX_EDGES} nodes need node {n} ({self.nodes[n].job.job.name!r}): "
                        "put nodes between it and them"
                    )
                self.nodes[n].out.append(f"{marks}{len(self.nodes)}")
        self._size += len(node.job.payload)
        if self._size > MAX_BYTES:
            raise BadOption(f"the nodes of a workflow have more than {MAX_BYTES:,} bytes: pass references")
        self.nodes.append(node)

    def args(self) -> tuple[bytes | str, ...]:
        """All nodes as scripts read them."""
        return tuple(one for node in self.nodes for one in node.args())


class AddedNodes(NodeList):
    """Nodes that a running node adds to its workflow. They are stored in the step that completes it."""

    def __init__(self) -> None:
        super().__init__(MAX_ADDED)


class WorkflowChunk(list[NewJob]):
    """A new workflow, as one request: the jobs of its nodes."""

    def __init__(self, workflow_id: str, name: str, nodes: NodeList) -> None:
        super().__init__(node.job for node in nodes.nodes)
        self.id = workflow_id
        self.name = name
        self.nodes = nodes


def start_workflow(keys: Keys, slot: Slot, chunk: WorkflowChunk) -> Op[Stored]:
    """Store a workflow, and release the nodes that need no others."""
    return Op(
        load("start_workflow"),
        (keys.sent(slot.id), *workflow_keys(keys, chunk.id), keys.workflows, keys.scheduled, keys.due),
        (slot.number, chunk.id, chunk.name, *chunk.nodes.args()),
        lambda reply: Stored(True, reply[1] / 1000, new=reply[0] == b"stored"),
    )


def results(keys: Keys, workflow_id: str, numbers: Sequence[int]) -> Op[list[bytes | None]]:
    """The results of nodes, as JSON; None for those that have none."""
    return Op("HMGET", (keys.workflow_results(workflow_id),), list(map(str, numbers)), list)


WorkflowChange = Literal["cancel", "retry", "skip", "check", "lost", "died", "alive"]


@dataclass(frozen=True, slots=True)
class Changed:
    """The answer to a change of a workflow."""

    #: `gone` if there is no such workflow or node, `busy` if a node is stored as a job, `ended` if its state does not allow it,
    #: `moved` if a node has another state than the caller read.
    answer: Literal["done", "gone", "busy", "ended", "moved"]
    changed: int
    released: int


def change_workflow(
    keys: Keys,
    workflow_id: str,
    what: WorkflowChange,
    number: int = -1,
    *,
    seen: str = "",
    dead: Iterable[tuple[int, bytes]] = (),
) -> Op[Changed]:
    """Cancel, retry or skip a node; with -1 cancel all, or retry those that are dead or cancelled. Or correct a node by its job.

    `dead` has the entries of dead that belong to its nodes, with their numbers, and `seen` the states that were read before these.
    """
    entries = (part for pair in dead for part in pair)
    return Op(
        load("change_workflow"),
        (*workflow_keys(keys, workflow_id), keys.cancelled_batches, keys.scheduled, keys.due, keys.dead),
        (workflow_id, what, number, seen, *entries),
        lambda reply: Changed(reply[0].decode(), reply[1], reply[2]),
    )


@dataclass(frozen=True, slots=True)
class StoredWorkflow:
    """A workflow as Redis has it. Times are seconds since the epoch, or None."""

    id: str
    name: str
    created_at: float
    cancelled_at: float | None
    #: When its last node ended; None while some have not, or wait for a dead one.
    ended_at: float | None
    #: One letter for each node.
    states: str

    @property
    def total(self) -> int:
        """How many nodes it has."""
        return len(self.states)

    def count(self, *wanted: NodeState) -> int:
        """How many nodes are in these states."""
        return sum(_STATES.get(letter) in wanted for letter in self.states)

    @property
    def state(self) -> WorkflowState:
        """What became of it. It has failed when a node is dead or cancelled that others may need, and goes on when that is retried."""
        if self.cancelled_at is not None:
            return "cancelled"
        if "d" in self.states or "x" in self.states:
            return "failed"
        return "succeeded" if self.ended_at is not None else "running"


@dataclass(frozen=True, slots=True)
class StoredNode:
    """A node of a workflow as Redis has it."""

    number: int
    name: str
    job_id: str
    state: NodeState
    #: The nodes that it needs, and those whose failure it waits for.
    needs: tuple[int, ...]
    watches: tuple[int, ...]
    policy: FailurePolicy
    #: When it was released as a job, and when it ended.
    released_at: float | None
    ended_at: float | None


def read(keys: Keys, workflow_id: str) -> Steps[StoredWorkflow | None]:
    """A workflow without its nodes; None if there is none."""
    (found,) = yield from read_many(keys, [workflow_id])
    return found


def read_many(keys: Keys, ids: Sequence[str]) -> Steps[list[StoredWorkflow | None]]:
    """Workflows without their nodes; None for those that are gone."""
    ops: list[Op[Any]] = []
    for one in ids:
        ops += [
            Op("HGETALL", (keys.workflow(one),), (), dict_of),
            Op("GET", (keys.workflow_states(one),), (), _text),
        ]
    answers = yield from ask_all(ops)
    return [_stored(one, answers[i * 2], answers[i * 2 + 1]) for i, one in enumerate(ids)]


def dict_of(reply: Any) -> dict[bytes, bytes]:
    """A hash as HGETALL answers it."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _text(reply: Any) -> str:
    return (reply or b"").decode("ascii", "replace")


def _stored(workflow_id: str, fields: Mapping[bytes, bytes], states: str) -> StoredWorkflow | None:
    if b"total" not in fields:
        return None
    return StoredWorkflow(
        workflow_id, fields.get(b"name", b"").decode("utf-8", "replace"), _moment(fields.get(b"created")) or 0.0,
        _moment(fields.get(b"cancelled")), _moment(fields.get(b"ended_at")), states,
    )  # fmt: skip


def _moment(value: bytes | None) -> float | None:
    return None if value is None else int(value) / 1000


def count(keys: Keys) -> Op[int]:
    """How many workflows were started in the last 187 days. Those that succeeded are gone after a week."""
    return Op("ZCARD", (keys.workflows,), (), int)


def page(keys: Keys, *, skip: int = 0, size: int = PAGE) -> Steps[list[StoredWorkflow]]:
    """Workflows, the newest first."""
    ids = yield from ask(Op("ZRANGE", (keys.workflows,), (skip, skip + size - 1, "REV"), texts))
    found = yield from read_many(keys, ids)
    return [one for one in found if one is not None]


#: The fields of a node, after its number: payload, nodes that it needs, policy, when it was released and ended.
_FIELDS = ("", ":in", ":on", ":from", ":to")


def read_nodes(
    keys: Keys, found: StoredWorkflow, numbers: Iterable[int] | None = None
) -> Steps[list[StoredNode]]:
    """Nodes of a workflow, by number; all of them unless some are named."""
    wanted = list(range(found.total) if numbers is None else numbers)
    nodes: list[StoredNode] = []
    for first in range(0, len(wanted), NODES_AT_ONCE):
        some = wanted[first : first + NODES_AT_ONCE]
        names = [f"{n}{field}" for n in some for field in _FIELDS]
        values = yield from ask(Op("HMGET", (keys.workflow_nodes(found.id),), names, list))
        for at, n in enumerate(some):
            fields = values[at * len(_FIELDS) : (at + 1) * len(_FIELDS)]
            if fields[0] is not None:
                nodes.append(_node(n, found.states[n], *fields))
    return nodes


def _node(
    number: int,
    letter: str,
    payload: bytes,
    edges: bytes | None,
    policy: bytes | None,
    since: bytes | None,
    until: bytes | None,
) -> StoredNode:
    needs = (edges or b"").decode("ascii").split()
    try:
        wire = codec.read(payload)
    except codec.Broken:
        wire = codec.Wire("")
    on_failure: FailurePolicy = "continue" if policy == b"c" else "skip" if policy == b"s" else "stop"
    return StoredNode(
        number, wire.name, wire.id, _STATES.get(letter, "waiting"),
        tuple(int(one) for one in needs if one[0] != "!"), tuple(int(one[1:]) for one in needs if one[0] == "!"),
        on_failure, _moment(since), _moment(until),
    )  # fmt: skip
