"""FakeWorkflows: the workflows of a testing block. Their nodes are released as the scripts release them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dayjob.errors import NotReady
from dayjob.store import codec
from dayjob.store.ops.batches import Fate, Member
from dayjob.store.ops.workflows import Changed, StoredWorkflow, WorkflowChange, WorkflowChunk

_NUMBERS = re.compile(r"(!?)(\d+)")


@dataclass(slots=True)
class FakeNode:
    """One node, as the nodes of a workflow are stored."""

    payload: bytes
    needs: list[tuple[bool, int]]
    out: list[tuple[bool, int]]
    policy: str
    state: str = "w"
    result: bytes | None = None


@dataclass(slots=True)
class FakeWorkflow:
    """One workflow."""

    id: str
    name: str
    created_at: float
    cancelled_at: float | None = None
    ended_at: float | None = None
    nodes: list[FakeNode] = field(default_factory=list)


class NodePlace(Protocol):
    """Where the jobs of nodes are."""

    def release_node(self, payload: bytes, /) -> None:
        """Store the job of a node."""
        ...

    def has_ended(self, job_id: str, /) -> bool:
        """Whether a job neither waits nor runs."""
        ...

    def drop_dead(self, job_ids: set[str], /) -> None:
        """Remove dead jobs."""
        ...


class FakeWorkflows:
    """The workflows by id. `place` has the jobs of their nodes, `cancelled` is where pools find cancelled nodes."""

    def __init__(self, now: Callable[[], float], place: NodePlace, cancelled: set[str]) -> None:
        self._now = now
        self._place = place
        self._release = place.release_node
        self._cancelled = cancelled
        self._workflows: dict[str, FakeWorkflow] = {}

    def start(self, chunk: WorkflowChunk) -> None:
        """Store a workflow, and release the nodes that need no others."""
        found = self._workflows[chunk.id] = FakeWorkflow(chunk.id, chunk.name, self._now())
        self._add(found, chunk.nodes.args())
        self._judge(found)

    def read(self, workflow_id: str) -> StoredWorkflow | None:
        """A workflow without its nodes."""
        found = self._workflows.get(workflow_id)
        if found is None:
            return None
        states = "".join(node.state for node in found.nodes)
        return StoredWorkflow(
            found.id, found.name, found.created_at, found.cancelled_at, found.ended_at, states
        )

    def results(self, workflow_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        """The results of nodes, as JSON."""
        nodes = self._workflow(workflow_id).nodes
        return [nodes[n].result for n in numbers]

    def note(self, member: Member) -> None:
        """Note what became of a node, and release what waited for it."""
        found, n = self._workflows.get(member.ids[0]), member.numbers[0]
        if found is None:
            return
        node = found.nodes[n]
        if member.fate == "reopened":
            if node.state not in "dnkx":
                return
            node.state = "r"
        elif node.state not in "rf":
            return
        elif member.fate == "completed":
            node.result = member.result or None
            self._add(found, member.added)
            self._finish(found, n, "c")
        else:
            self._end(found, n, member.fate)
        self._judge(found)

    def change(self, workflow_id: str, what: WorkflowChange, number: int = -1) -> Changed:
        """Cancel, retry or skip a node; with -1 cancel all, or retry those that are dead or cancelled."""
        found = self._workflow(workflow_id)
        if number >= len(found.nodes):
            return Changed("gone", 0, 0)
        numbers = self._meant(found, number, what)
        if what in ("retry", "skip"):
            return self._again(found, numbers, what)
        changed = 0
        for n in numbers:
            node = found.nodes[n]
            if what == "cancel" and node.state in "wrf":
                if node.state in "rf":
                    self._cancelled.add(f"{workflow_id}/{n}")
                node.state = "x"
                changed += 1
        if what == "cancel" and number < 0 and changed:
            found.cancelled_at = self._now()
        self._judge(found)
        return Changed("done", changed, 0)

    def _again(self, found: FakeWorkflow, numbers: list[int], what: WorkflowChange) -> Changed:
        """Let nodes wait again, and release those that can go on; or skip the first."""
        nodes = [found.nodes[n] for n in numbers]
        ids = [codec.read(node.payload).id for node in nodes]
        stopped = zip(nodes, ids, strict=True)
        if any(
            node.state in "rf" or (node.state == "x" and not self._place.has_ended(one))
            for node, one in stopped
        ):
            return Changed("busy", 0, 0)
        if what == "skip" and nodes[0].state not in "wdx":
            return Changed("ended", 0, 0)
        self._place.drop_dead(set(ids))
        for n, node in zip(numbers, nodes, strict=True):
            self._cancelled.discard(f"{found.id}/{n}")
            node.result, node.state = None, "w"
        if numbers:
            found.cancelled_at = None
        if what == "skip":
            self._finish(found, numbers[0], "s")
        else:
            self._settle(found, numbers)
        self._judge(found)
        return Changed("done", len(numbers), sum(node.state == "r" for node in nodes))

    def _meant(self, found: FakeWorkflow, number: int, what: WorkflowChange) -> list[int]:
        """The node and all that need it, directly or not; for -1 all nodes, or those that stop others and all that need them."""
        numbers = [number]
        if number < 0:
            numbers = [n for n, node in enumerate(found.nodes) if what != "retry" or node.state in "dx"]
        for n in numbers if what != "skip" else ():
            for watches, m in found.nodes[n].out:
                # A retry leaves out those that wait for a failure only, unless they were skipped.
                follows = what != "retry" or not watches or found.nodes[m].state == "s"
                if follows and m not in numbers:
                    numbers.append(m)
        return numbers

    def _workflow(self, workflow_id: str) -> FakeWorkflow:
        if workflow_id not in self._workflows:
            raise NotReady(f"there is no workflow {workflow_id!r} in this testing block")
        return self._workflows[workflow_id]

    def _add(self, found: FakeWorkflow, args: Sequence[bytes | str]) -> None:
        first = len(found.nodes)
        for i in range(0, len(args), 4):
            raw, needs, out, policy = args[i : i + 4]
            payload = raw if isinstance(raw, bytes) else raw.encode()
            place = [found.id, first + i // 4]
            payload = codec.rewrite(payload, {"membership": place})
            found.nodes.append(FakeNode(payload, _edges(needs, first), _edges(out, first), str(policy)))
        self._settle(found, range(first, len(found.nodes)))

    def _end(self, found: FakeWorkflow, n: int, fate: Fate) -> None:
        node = found.nodes[n]
        if fate == "failed":
            node.state = "f"
        elif fate == "dead":
            self._finish(found, n, {"c": "n", "s": "k"}.get(node.policy, "d"))
        else:
            self._finish(found, n, "s" if fate == "skipped" else "x")

    def _finish(self, found: FakeWorkflow, n: int, state: str) -> None:
        found.nodes[n].state = state
        self._settle(found, [m for _, m in found.nodes[n].out])

    def _settle(self, found: FakeWorkflow, numbers: Iterable[int]) -> None:
        """Release or skip those of these nodes that wait, and what follows from skipping them."""
        left = list(numbers)
        for n in left:
            node = found.nodes[n]
            verdict = _verdict(found, node) if node.state == "w" else ""
            if verdict == "r":
                node.state = "r"
                self._release(node.payload)
            elif verdict == "s":
                node.state = "s"
                left += [m for _, m in node.out]

    def _judge(self, found: FakeWorkflow) -> None:
        is_open = any(node.state in "wrf" for node in found.nodes)
        found.ended_at = None if is_open else found.ended_at or self._now()


def _edges(text: bytes | str, first: int) -> list[tuple[bool, int]]:
    return [(mark == "!", int(n) + first) for mark, n in _NUMBERS.findall(str(text))]


def _verdict(found: FakeWorkflow, node: FakeNode) -> str:
    """What becomes of a node that waits: "r" to release it, "s" to skip it, "" to wait on."""
    needs = [found.nodes[n].state for watches, n in node.needs if not watches]
    watched = [found.nodes[n].state for watches, n in node.needs if watches]
    if any(state in "wrfdx" for state in needs):
        return ""
    failed = any(state in "dnk" for state in watched)
    if watched and not failed:
        return "s" if all(state in "cs" for state in watched) else ""
    if needs and not failed and all(state in "sk" for state in needs):
        return "s"
    return "r"
