"""The sentences for what reasons.py and obstacles.py answer. Nothing compares them: a program uses the kinds. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dayjob.explain.batches import BatchWaits
from dayjob.explain.obstacles import (
    AllBusy,
    AllQuiet,
    AtLimit,
    KeyFull,
    KeyPaused,
    NoPool,
    NoWorker,
    Obstacle,
    QueuePaused,
    RateLimited,
    WrongType,
)
from dayjob.explain.reasons import (
    HolderDied,
    JobDead,
    JobDone,
    JobDue,
    JobFetched,
    JobFinished,
    JobNotFound,
    JobRunning,
    JobWaiting,
    Reason,
)
from dayjob.explain.workflows import NodeWaits, WorkflowWaits
from dayjob.store.ops.find import MAX_SEARCHED
from dayjob.store.ops.pools import LoopBlock, Status
from dayjob.store.ops.workflows import NodeState, StoredNode
from dayjob.text import counted, span, took

#: How many pools with a blocked event loop are named, and how many characters of an error are shown.
MAX_BLOCKED_POOLS = 3
MAX_ERROR_CHARS = 200


def quoted(name: str) -> str:
    """A name, set apart from the sentence around it."""
    return f'"{name}"'


def sentence(reason: Reason) -> str:
    """Why a job is not running, in one sentence; where an operator can do something about it, a second line has the next step."""
    match reason:
        case JobNotFound():
            return (
                f"No job {quoted(reason.job_id)} waits, runs or is kept: it completed, was deleted or never existed"
                f" (the first {MAX_SEARCHED:,} of each queue were searched)."
            )
        case JobWaiting():
            return _waiting(reason)
        case HolderDied():
            return f"Was running on pool {reason.pool_id}, which died; its attempts are being rescued."
        case JobFetched(obstacle=None):
            return f"Fetched by {place(reason.pool)}: about to start, or started less than 0.5 s ago.{_ending(reason)}"
        case JobFetched(obstacle=AllBusy() as why):
            words = f"Fetched by {place(reason.pool)}, but not started: {_busy(why, reason.now)}."
            return f"{words}{_ending(reason)}{_next_step(why)}"
        case JobRunning():
            blocks = " and blocks its event loop" if reason.blocks else ""
            checkin = f": {reason.checkin}" if reason.checkin else ""
            return f"Running for {span(reason.seconds)} on {place(reason.pool)}{blocks}{checkin}.{_ending(reason)}"
        case JobDue():
            return _due(reason)
        case JobDead():
            return _dead(reason)
        case JobDone():
            kept = "" if reason.kept_for is None else f", and kept for another {span(reason.kept_for)}"
            return f"Completed{kept}."
        case JobFinished():
            return _finished(reason)
    raise AssertionError(reason)


#: How the history names the end of an attempt that ended its job, to the words for it.
_FINISHED = {
    "completed": "Completed", "discarded": "Discarded", "dropped": "Dropped after its last failure",
    "cancelled": "Cancelled by an operator",
}  # fmt: skip


def _finished(reason: JobFinished) -> str:
    error = f" with {reason.error}" if reason.error else ""
    ran = f" after {took(reason.ran)}" if reason.ran is not None else ""
    when = f"{span(reason.seconds)} ago"
    if reason.ending in _FINISHED:
        return f"{_FINISHED[reason.ending]} {when}: attempt {reason.attempt} ended{ran}{error}."
    ending = reason.ending.replace("_", " ")
    return (
        f"No longer stored. Its last recorded attempt ({reason.attempt}) ended {when}{ran}{error}: {ending}. "
        "The job was deleted since, or it ran again and that attempt was not recorded."
    )


def batch_sentence(waits: BatchWaits) -> str:
    """What a batch waits for, in one sentence; where an operator can do something about it, a second line has the next step."""
    batch = waits.batch
    if batch.left:
        parts = [f"{waits.retry:,} in retry"] if waits.retry else []
        if waits.running:
            parts.append(f"{waits.running:,} running on {', '.join(waits.places)}")
        if waits.waiting:
            parts.append(f"{waits.waiting:,} not started")
        words = f"Waits for {batch.left:,} of {counted(batch.total, 'member')}: {', '.join(parts)}."
        return words if batch.closed else f"{words} More may join: its block has not ended."
    if not batch.closed:
        return (
            f"Open: all of its {counted(batch.total, 'member')} have ended, and more may join, because its block has not ended.\n"
            f"    If the program that opened it is gone: dayjob batches close {batch.id}, or cancel it."
        )
    if batch.ended_at is None:
        return (
            f"All of its {counted(batch.total, 'member')} have ended, but the batch has not.\n"
            f"    dayjob batches audit {batch.id} --repair"
        )
    dead = f", {batch.dead:,} dead" if batch.dead else ""
    cancelled = "Cancelled. " if batch.cancelled_at is not None else ""
    return f"{cancelled}All of its {counted(batch.total, 'member')} have ended: {batch.ended - batch.dead:,} completed{dead}."


def workflow_sentence(waits: WorkflowWaits) -> str:
    """What a workflow waits for, in one sentence; where an operator can do something about it, a second line has the next step."""
    found = waits.workflow
    nodes = counted(found.total, "node")
    parts = [
        (len(waits.running), f"running on {', '.join(waits.places)}"),
        (found.count("released", "failed") - len(waits.running), "in a queue or in retry"),
        (found.count("waiting"), "waiting for others"),
    ]
    left = ", ".join(f"{number:,} {words}" for number, words in parts if number > 0)
    if found.state == "failed":
        named = " and ".join(f"{_node(one)} is {one.state}" for one in waits.stopped)
        more = found.states.count("d") + found.states.count("x") - len(waits.stopped)
        text = f"Failed: {named}{f', and {more:,} more' if more > 0 else ''}. "
        text += f"Of its {nodes}: {left}." if left else "The others have ended."
        return f"{text}\n    dayjob workflows retry {found.id}, or go on without a node: dayjob workflows skip {found.id} NODE"
    if left:
        return f"Waits for {found.count('waiting', 'released', 'failed'):,} of {nodes}: {left}."
    ended = [(found.count(state), state) for state in ("completed", "skipped", "dead", "cancelled")]
    words = ", ".join(f"{number:,} {state}" for number, state in ended if number)
    return f"{'Cancelled. ' if found.state == 'cancelled' else ''}All of its {nodes} have ended: {words}."


def _node(node: StoredNode) -> str:
    return f"node {node.number} ({node.name})"


#: The states of nodes, as the end of a sentence.
_IS: dict[NodeState, str] = {
    "waiting": "which waits for others", "released": "which is in a queue or runs", "failed": "which failed and runs again",
    "completed": "which completed", "dead": "which is dead", "skipped": "which was skipped", "cancelled": "which was cancelled",
}  # fmt: skip


def node_sentence(waits: NodeWaits) -> str:
    """What a node of a workflow waits for, in one sentence; if a node stops it, a second line has the next step."""
    found, node = waits.workflow, waits.node
    own = f"Node {node.number} of the workflow {quoted(found.name)} ({found.id})"
    named = ", ".join(f"{_node(one)}, {_IS[one.state]}" for one in waits.first)
    more = f", and {waits.open - len(waits.first):,} more" if waits.open > len(waits.first) else ""
    if not node.needs:
        return f"{own} waits for the failure of one of these: {named}{more}."
    which = "" if len(node.needs) == 1 else f"{waits.open:,} of the {len(node.needs):,} nodes that it needs: "
    text = f"{own} waits for {which}{named}{more}."
    stops = next((one for one in waits.first if one.state in ("dead", "cancelled")), None)
    if stops is None:
        return text
    return f"{text}\n    dayjob workflows retry {found.id} {stops.number}, or go on without it: dayjob workflows skip {found.id} {stops.number}"


def held_up_sentence(workflow_id: str, number: int, nodes: int) -> str:
    """What the death of a node does to its workflow, as a line to follow the reason."""
    verb = "waits" if nodes == 1 else "wait"
    return f"\n    It is node {number} of the workflow {workflow_id}: {counted(nodes, 'node')} {verb} for it."


def place(pool: Status) -> str:
    """Where a pool runs."""
    return f"{pool.host}/{pool.pid}" if pool.host else f"pool {pool.id}"


def _ending(reason: JobFetched | JobRunning) -> str:
    return " An operator asked it to end; it will not run again." if reason.cancelled else ""


def _waiting(reason: JobWaiting) -> str:
    ahead = "it is the next" if reason.ahead == 0 else f"{reason.ahead:,} ahead of it"
    start = f"Waits in the queue {quoted(reason.queue)} ({ahead}):"
    if reason.expired:
        return f"{start} it has expired and is discarded when its turn comes."
    if isinstance(reason.obstacle, RateLimited | KeyFull | KeyPaused):
        return _waits_for_limit(reason.obstacle, reason.ahead)
    why = "it is about to be fetched" if reason.obstacle is None else obstacle(reason.obstacle, reason.now)
    if reason.holders:
        why += f", held by {', '.join(reason.holders)}"
    if reason.per_minute:
        turn = span(reason.ahead / reason.per_minute * 60)
        why += f"; at the pace of the last minutes its turn comes in about {turn}"
    return f"{start} {why}." + (_next_step(reason.obstacle) if isinstance(reason.obstacle, AllBusy) else "")


def _waits_for_limit(why: RateLimited | KeyFull | KeyPaused, ahead: int) -> str:
    before = "it is the next" if ahead == 0 else f"{counted(ahead, 'job')} ahead of it"
    key = f" ({why.key})" if why.key else ""
    match why:
        case KeyPaused():
            return f"Waits{key}: this key is paused, {before}."
        case KeyFull():
            return f"Waits for the limit of {why.limit:,} at once{key}: {why.held:,} running, {before}."
        case RateLimited(held=True):
            return f"Waits for the limit {why.limit}{key}: held for another {span(why.wait)}, {before}."
        case _:
            return f"Waits for the limit {why.limit}{key}: {why.allows}, next slot in {span(why.wait)}, {before}."


def obstacle(why: Obstacle, now: float) -> str:
    """What keeps pools from fetching from a queue, as the end of a sentence."""
    match why:
        case WrongType():
            return "the key of its queue has a wrong type"
        case QueuePaused(by=""):
            return "its queue is paused"
        case QueuePaused():
            ago = f" {span(now - why.at)} ago" if why.at else ""
            return f"its queue was paused by {why.by}{ago}"
        case NoPool():
            return "no pool is running"
        case NoWorker():
            waiting = f", {why.unreported:,} not reporting yet" if why.unreported else ""
            return f"no live pool has this job ({counted(why.pools, 'pool')}{waiting})"
        case AllQuiet(pools=1):
            return "the only pool that has this job is quiet"
        case AllQuiet():
            return f"all {why.pools:,} pools that have this job are quiet"
        case AtLimit():
            return f"its limit is reached ({why.held:,} of {why.limit:,} running)"
        case KeyFull():
            return f"the limit of its key is reached ({why.held:,} of {why.limit:,} running)"
        case KeyPaused():
            return f"its key is paused ({why.key})"
        case RateLimited(held=True):
            return f"its limit {quoted(why.limit)} is held for another {span(why.wait)}"
        case RateLimited():
            return f"its limit {quoted(why.limit)} is used up ({why.allows}): the next job may start in {span(why.wait)}"
        case AllBusy():
            return _busy(why, now)
    raise AssertionError(why)


def _busy(why: AllBusy, now: float) -> str:
    return "; ".join(
        [
            *(_blocked_loop(pool, now) for pool in why.blocked[:MAX_BLOCKED_POOLS]),
            *([_busy_workers(why.full)] if why.full else []),
            *([_busy_threads(why.threadless)] if why.threadless else []),
        ]
    )


def _of(pools: Sequence[Status]) -> str:
    return place(pools[0]) if len(pools) == 1 else counted(len(pools), "pool")


def _blocked_loop(pool: Status, now: float) -> str:
    block = pool.loop_blocked or LoopBlock(since=now)
    by = f"by {quoted(block.name)} (id {block.id})" if block.name else "by something that a handler started"
    return f"the event loop of {place(pool)} has been blocked for {span(now - block.since)} {by[:300]}"


def _busy_workers(full: Sequence[Status]) -> str:
    workers = sum(pool.concurrency for pool in full)
    stuck = sum(pool.stuck for pool in full)
    if workers == 1:
        return f"the only worker of {_of(full)} is busy" + (", stuck past its timeout" if stuck else "")
    return f"all {workers:,} workers of {_of(full)} are busy{_stuck(stuck)}"


def _busy_threads(pools: Sequence[Status]) -> str:
    threads = sum(pool.threads for pool in pools)
    first = pools[0]
    settings = f"threads={first.threads}, concurrency={first.concurrency}" if len(pools) == 1 else _of(pools)
    only = "the only thread for plain functions is busy"
    words = only if threads == 1 else f"all {threads:,} threads for plain functions are busy"
    return f"{words} ({settings}){_stuck(sum(pool.stuck for pool in pools))}"


def _stuck(number: int) -> str:
    if number == 0:
        return ""
    return f"; {number:,} of them {'is stuck past its' if number == 1 else 'are stuck past their'} timeout"


def _next_step(why: AllBusy) -> str:
    return f"\n    {_what_to_do(why)}"


def _what_to_do(why: AllBusy) -> str:
    stuck = next((pool for pool in (*why.full, *why.threadless) if pool.stuck), None)
    if stuck is not None:
        # A thread cannot be ended from outside, a process can.
        return (
            f"`dayjob pools stacks {stuck.id}` shows where the stuck jobs are in their code;"
            " restarting that process frees its workers."
        )
    if why.blocked:
        block = why.blocked[0].loop_blocked
        handler = quoted(block.name) if block and block.name else "that handler"
        return f"Await what takes long in {handler}, or make it a plain `def`."
    if why.threadless:
        return "Raise threads=, or make these jobs `async def`."
    return "See `dayjob jobs ls --state running`, or start more workers."


def _due(reason: JobDue) -> str:
    error = ""
    if reason.fails:
        error = f" after {counted(reason.fails, 'fail')}, the last: {_line(reason.error)}"
    if reason.seconds > 0:
        return f"Due in {span(reason.seconds)}{error}."
    why = "no pool is the leader, so nothing moves it to its queue"
    if reason.leader is not None:
        why = f"pool {reason.leader} is about to move it to its queue"
    return f"Was due {span(-reason.seconds)} ago{error}: {why}."


def _dead(reason: JobDead) -> str:
    if reason.seconds is None:
        return "Dead; only its error is kept."
    words = f"Died {span(reason.seconds)} ago: {_line(reason.error) or 'no error is recorded'}"
    if reason.holder:
        words += f" (job {reason.holder[:80]} has its unique key)"
    return f"{words.removesuffix('.')}."


def _line(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= MAX_ERROR_CHARS else f"{first[: MAX_ERROR_CHARS - 3]}..."
