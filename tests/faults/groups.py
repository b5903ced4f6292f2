"""Promises about jobs that belong together: what atomic jobs enqueue, batches and workflows.

A job that is *pending* exists if it has started by the last census, or is in a place then: at rest everything has run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from faults.ledger import BatchSeen, NodePlan
from faults.story import Group, Life, Story

#: Letters of nodes that completed, or that are dead and whose policy lets others go on.
MET, SKIPPED, DEAD = "cn", "sk", {"stop": "d", "continue": "n", "skip": "k"}


# What an attempt enqueues that is stored when it completes.


def atomic(story: Story) -> Iterator[str]:
    """I21: what an atomic job enqueued exists exactly if it completed, and of one attempt only."""
    if story.rest is None:
        return
    made: dict[str, dict[str, list[Life]]] = defaultdict(lambda: defaultdict(list))
    for life in story.lives.values():
        if life.asked is not None and life.asked.parent:
            made[life.asked.parent][f"{life.asked.pool}/{life.asked.token}"].append(life)
    for serial, attempts in made.items():
        parent = story.lives.get(serial)
        if parent is None:
            yield f"{serial}: has jobs, and was never asked for"
            continue
        counts = {place: sum(map(story.exists, lives)) for place, lives in attempts.items()}
        wanted = {place: len(lives) for place, lives in attempts.items()}
        yield from one_family(story, parent, wanted, counts)


def one_family(story: Story, parent: Life, wanted: dict[str, int], counts: dict[str, int]) -> Iterator[str]:
    """What is wrong with the jobs of an atomic job. By attempt: how many it enqueued, and how many of these exist."""
    there = {place: count for place, count in counts.items() if count}
    if not story.completed(parent):
        for place, count in there.items():
            yield f"{parent.serial}: did not complete, and yet there are {count} jobs of {place}"
        return
    ended_well = {one.place for one in parent.attempts if one.how == "ok"}
    if len(there) > 1:
        yield f"{parent.serial}: jobs of {len(there)} attempts exist: {', '.join(sorted(there))}"
    for place, count in there.items():
        if place not in ended_well:
            yield f"{parent.serial}: there are {count} jobs of {place}, which did not end well"
        if count != wanted.get(place, 0):
            yield f"{parent.serial}: {place} enqueued {wanted.get(place, 0)} jobs, there are {count}"
    # An attempt that enqueued nothing may be the one that completed it.
    if not there and all(wanted.get(place) for place in ended_well):
        yield f"{parent.serial}: completed, and none of its jobs exists"


# Batches.


def batches(story: Story) -> Iterator[str]:
    """I22: no batch is stuck, it counts what became of its members, and each callback came once for that."""
    if story.rest is None:
        return
    seen = story.rest.batches
    for group in story.groups.values():
        if group.asked.graph:
            continue
        found = seen.get(group.id)
        if found is not None:
            yield from _batch(story, group, found)
        elif group.answer is not None and group.answer.how == "stored":
            yield f"batch {group.id}: was stored, and there is none"
        elif any(map(story.exists, group.members)):
            yield f"batch {group.id}: it has jobs, and there is none"
    for batch_id in seen.keys() - story.groups.keys():
        yield f"batch {batch_id}: nobody asked for it"


def _members(group: Group) -> list[Life]:
    return [life for life in group.members if life.name != "called"]


def _batch(story: Story, group: Group, found: BatchSeen) -> Iterator[str]:
    seen = story.rest.batches if story.rest is not None else {}
    members = [life for life in _members(group) if story.exists(life)]
    nested = [seen[one.id] for one in group.nested if one.id in seen]
    total = len(members) + len(nested)
    dead = sum(map(story.is_dead, members)) + sum(one.dead > 0 for one in nested)
    name = f"batch {group.id}"
    if not found.closed or found.ended != found.total or found.failed:
        yield (
            f"{name}: stuck: {found.ended} of {found.total} members have ended, {found.failed} are to run again, "
            f"{'closed' if found.closed else 'open'}"
        )
        return
    if (found.total, found.dead) != (total, dead):
        yield f"{name}: counts {found.total} members, {found.dead} dead; there are {total}, {dead} dead"
    must = {"complete"} | ({"success"} if dead == 0 else set())
    may = set(must)
    died = any(story.is_dead(life) or life.revivals for life in members)
    if died or any(one.dead for one in nested):
        must.add("dead")
    if died or any(_had_deaths(story, one) for one in group.nested):
        may.add("dead")
    for event in group.asked.how.split():
        callback = story.lives.get(f"{group.id}-{event}")
        called = callback is not None and story.exists(callback)
        if called != (event in found.sent):
            yield f"{name}: its callback for {event} {'is there' if called else 'is missing'}, sent are {found.sent}"
        if (event in must and not called) or (called and event not in may):
            yield f"{name}: called back for {event}: {called}, with {dead} of {total} members dead"
        if called and callback is not None and event != "dead":
            reopened = min((one.at for life in members for one in life.revivals), default=float("inf"))
            # One that is retried may add members after the batch had ended, and called back for that.
            first = [life for life in members if life.asked is None or life.asked.at < reopened]
            yield from _too_early(name, event, callback, members if event == "success" else first)


def _had_deaths(story: Story, group: Group) -> bool:
    """Whether a member of a batch, or of one inside it, was dead at some time."""
    return any(story.is_dead(life) or life.revivals for life in _members(group)) or any(
        _had_deaths(story, one) for one in group.nested
    )


def _too_early(name: str, event: str, callback: Life, members: list[Life]) -> Iterator[str]:
    """Whether a callback started before a member can have ended: it came before the first end of one that completed."""
    start = min((one.start.at for one in callback.attempts), default=float("inf"))
    for life in members:
        ends = [
            one.end.at
            for one in life.attempts
            if one.end is not None and one.how in ("ok", "discard", "dead")
        ]
        if ends and start < min(ends):
            yield f"{name}: called back for {event} before its member {life.serial} ended"


# Workflows.


def workflows(story: Story) -> Iterator[str]:
    """I23: no workflow is stuck, a node ran exactly if what it needs allows it, after that, and with its results."""
    if story.rest is None:
        return
    seen = story.rest.workflows
    for group in story.groups.values():
        if not group.asked.graph:
            continue
        letters = seen.get(group.id)
        if letters is not None:
            yield from _workflow(story, group, letters)
        elif group.answer is not None and group.answer.how == "stored":
            yield f"workflow {group.id}: was stored, and there is none"
        elif any(map(story.exists, group.members)):
            yield f"workflow {group.id}: it has jobs, and there is none"
    for workflow_id in seen.keys() - story.groups.keys():
        yield f"workflow {workflow_id}: nobody asked for it"


def _workflow(story: Story, group: Group, letters: str) -> Iterator[str]:
    name, graph = f"workflow {group.id}", group.asked.graph
    added = sum(story.exists(life) for life in group.members if life.asked is not None and life.asked.parent)
    if len(letters) != len(graph) + added:
        yield f"{name}: has {len(letters)} nodes, {len(graph)} were asked for and {added} added"
        return
    if set(letters) & set("rfx"):
        yield f"{name}: stuck at rest: {letters}"
    for number, plan in enumerate(graph):
        life = story.lives.get(plan.serial)
        if life is None:
            yield f"{name}: node {number} is unknown"
            continue
        letter = letters[number]
        if letter not in _letters(story, life, plan):
            yield f"{name}: node {number} is {letter!r}, and its job {_fate(story, life)}: {letters}"
        verdict = _verdict(story, graph, letters, plan)
        waits, ran = letter == "w", story.exists(life)
        if (
            waits is not (verdict == "wait")
            or (verdict == "skip" and letter != "s")
            or (verdict == "run" and not ran)
        ):
            yield f"{name}: node {number} is {letter!r}, and should {verdict}: {letters}"
        yield from _inputs(story, name, graph, life, plan)


def _letters(story: Story, life: Life, plan: NodePlan) -> str:
    """What the state of a node can be, by what became of its job."""
    if not story.exists(life):
        return "ws"
    if story.is_dead(life):
        return DEAD[plan.policy]
    return "c" if story.completed(life) else "s"


def _fate(story: Story, life: Life) -> str:
    if not story.exists(life):
        return "does not exist"
    if story.is_dead(life):
        return "is dead"
    return "completed" if story.completed(life) else "did not complete"


def _verdict(story: Story, graph: list[NodePlan], letters: str, plan: NodePlan) -> str:
    """What a node should do, by the states of the nodes that it needs."""
    if plan.watches:
        watched = [story.lives.get(graph[n].serial) for n in plan.watches]
        if any(life is not None and (story.is_dead(life) or life.revivals) for life in watched):
            return "run"
        return "skip" if all(letters[n] in "cs" for n in plan.watches) else "wait"
    states = [letters[n] for n in plan.needs]
    if any(one not in MET + SKIPPED for one in states):
        return "wait"
    return "skip" if states and all(one in SKIPPED for one in states) else "run"


def _inputs(story: Story, name: str, graph: list[NodePlan], life: Life, plan: NodePlan) -> Iterator[str]:
    """Whether each attempt of a node started after what it needs had ended, and got what that returned."""
    for attempt in life.attempts:
        results = msgspec.json.decode(attempt.start.how) if attempt.start.how else []
        if len(results) != len(plan.needs):
            yield f"{name}: {life.serial} got {len(results)} results of {len(plan.needs)}"
            continue
        for result, n in zip(results, plan.needs, strict=True):
            needed = story.lives.get(graph[n].serial)
            ends = (
                []
                if needed is None
                else [one.end.at for one in needed.attempts if one.end and one.how == "ok"]
            )
            if result is not None and result != graph[n].serial:
                yield f"{name}: {life.serial} got {result!r} in the place of what {graph[n].serial} returned"
            if result is not None and not any(at <= attempt.start.at for at in ends):
                yield f"{name}: {life.serial} started before {graph[n].serial} had completed"
            if result is None and needed is not None and story.completed(needed) and not needed.revivals:
                yield f"{name}: {life.serial} did not get what {graph[n].serial} returned"
