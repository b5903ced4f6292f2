"""What does a workflow wait for, or one of its nodes? Reads the states of nodes; words.py has the sentences."""

from __future__ import annotations

from dataclasses import dataclass

from dayjob.explain.batches import running_members
from dayjob.store.keys import Keys
from dayjob.store.ops import workflows
from dayjob.store.ops.workflows import StoredNode, StoredWorkflow
from dayjob.store.steps import Steps

#: How many of the newest workflows are searched for a node that no queue has yet, and how many nodes of them.
MAX_WORKFLOWS = 100
MAX_NODES = 5000
#: How many nodes a sentence names.
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class WorkflowWaits:
    """What a workflow waits for."""

    workflow: StoredWorkflow
    #: The numbers of nodes that pools hold, and the pools as host and process.
    running: frozenset[int]
    places: tuple[str, ...]
    #: The first nodes that are dead or cancelled, which others may need.
    stopped: tuple[StoredNode, ...]


@dataclass(frozen=True, slots=True)
class NodeWaits:
    """What a node waits for."""

    workflow: StoredWorkflow
    node: StoredNode
    #: How many nodes that it needs have not completed, or might still fail.
    open: int
    #: The first of these, those that are dead or cancelled before others.
    first: tuple[StoredNode, ...]


def workflow_waits(keys: Keys, found: StoredWorkflow) -> Steps[WorkflowWaits]:
    """What a workflow waits for."""
    numbers: list[int] = []
    places: tuple[str, ...] = ()
    if found.count("released", "failed"):
        numbers, places = yield from running_members(keys, found.id)
    bad = [n for n, letter in enumerate(found.states) if letter in "dx"][:MAX_NAMED]
    stopped = yield from workflows.read_nodes(keys, found, bad)
    return WorkflowWaits(found, frozenset(numbers), places, tuple(stopped))


def node_waits(keys: Keys, found: StoredWorkflow, node: StoredNode) -> Steps[NodeWaits]:
    """What a node waits for."""
    needs = node.needs or node.watches
    # One that is dead lets others go on if its policy is not "stop"; its letter is another then.
    ended = "cnsk" if node.needs else "cs"
    waits = [n for n in needs if found.states[n] not in ended]
    waits.sort(key=lambda n: found.states[n] not in "dx")
    first = yield from workflows.read_nodes(keys, found, waits[:MAX_NAMED])
    return NodeWaits(found, node, len(waits), tuple(first))


def waiting_node(keys: Keys, job_id: str) -> Steps[NodeWaits | None]:
    """What a node waits for that no queue has yet, by the id that its job will have; None if it is not found.

    The newest 100 workflows are searched, and at most 5,000 nodes of them.
    """
    left = MAX_NODES
    for found in (yield from workflows.page(keys, size=MAX_WORKFLOWS)):
        numbers = [n for n, letter in enumerate(found.states) if letter == "w"][:left]
        left -= len(numbers)
        for node in (yield from workflows.read_nodes(keys, found, numbers)):
            if node.job_id == job_id:
                return (yield from node_waits(keys, found, node))
    return None


def held_up_by(keys: Keys, workflow_id: str, number: int) -> Steps[int]:
    """How many nodes wait because this one is dead, directly or not; 0 if the workflow is gone."""
    found = yield from workflows.read(keys, workflow_id)
    if found is None or found.states[number : number + 1] != "d":
        return 0
    waiting = [n for n, letter in enumerate(found.states) if letter == "w" and n > number][:MAX_NODES]
    below = {number}
    # A node needs only nodes with smaller numbers.
    for node in (yield from workflows.read_nodes(keys, found, waiting)):
        if below.intersection(node.needs):
            below.add(node.number)
    return len(below) - 1
