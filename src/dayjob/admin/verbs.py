"""What operators can do: one row for each verb. The actions, the web console, its API, the commands and the terminal view
all read this table, so that they allow, offer and ask the same. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dayjob.admin.views import Periodic, Queue, State, Status

#: The actions on jobs.
Verb = Literal["retry", "run_now", "cancel", "kill", "delete"]
VerbTarget = Literal[
    "job",
    "queue",
    "pool",
    "worker",
    "schedule",
    "batch",
    "workflow",
    "node",
    "broken",
    "deletion",
    "all_jobs",
    "due_job",
    "waiting_job",
]


@dataclass(frozen=True, slots=True)
class VerbRow:
    """One action of operators."""

    target: VerbTarget
    name: str
    label: str
    #: What it does, as a sentence for the question before it.
    effect: str
    #: Its command: `dayjob jobs retry`.
    command: str
    #: Its address in the JSON API.
    path: str
    #: Its key in the terminal view; in capitals it acts on all jobs that match.
    key: str
    #: States of the target in which it is allowed.
    states: tuple[str, ...]
    #: Those of `states` in which menus leave it out, because another verb does the same there.
    same_as_other: tuple[str, ...] = ()
    #: States in which it can be done to all jobs that match a filter.
    bulk: tuple[str, ...] = ()
    #: States that the caller must name, so that it is not done there by mistake.
    named: tuple[str, ...] = ()
    #: Whether it loses something, if only after the time for undo, so that every interface asks first.
    asks: bool = False
    #: Whether the bin keeps what it deletes, so that undo can put it back.
    undoes: bool = False

    @property
    def offered(self) -> tuple[str, ...]:
        """The states in which menus offer it."""
        return tuple(state for state in self.states if state not in self.same_as_other)


#: What every interface adds where it asks about a verb with `undoes`.
UNDO = "The bin keeps what is deleted for ten minutes; undo puts it back. To free memory at once, delete for good."

_DUE_LATER = ("scheduled", "retry")
_NOT_STARTED = ("waiting", *_DUE_LATER)

TABLE = (
    VerbRow(
        "job", "retry", "Retry", "The job goes back to its queue as if it had never failed.",
        "jobs retry", "/job/retry", "r", ("dead", *_DUE_LATER), same_as_other=_DUE_LATER, bulk=("dead", *_DUE_LATER),
    ),
    VerbRow(
        "job", "run_now", "Run now", "The job moves to its queue before it is due.",
        "jobs run", "/job/run_now", "r", _DUE_LATER, bulk=_DUE_LATER,
    ),
    VerbRow(
        "job", "cancel", "Cancel", "A waiting job goes to the bin for ten minutes. A running job is stopped at its next check-in; an async one at its next await.",
        "jobs cancel", "/job/cancel", "c", ("running", *_NOT_STARTED), same_as_other=_NOT_STARTED, bulk=("running", *_NOT_STARTED), asks=True, undoes=True,
    ),
    VerbRow(
        "job", "kill", "Kill", "The job moves to dead and does not run until an operator retries it. A running job is stopped, with its process if necessary.",
        "jobs kill", "/job/kill", "x", ("running", *_NOT_STARTED), bulk=_NOT_STARTED, named=("running",), asks=True,
    ),
    VerbRow(
        "job", "delete", "Delete", "The job goes to the bin for ten minutes, and its unique key is released.",
        "jobs delete", "/job/delete", "d", (*_NOT_STARTED, "dead", "done"), bulk=(*_NOT_STARTED, "dead", "done"), asks=True, undoes=True,
    ),
    VerbRow(
        "queue", "pause", "Pause", "No more jobs are fetched from the queue. Running jobs go on.",
        "queues pause", "/queue/pause", "p", ("open",),
    ),
    VerbRow(
        "queue", "resume", "Resume", "Jobs are fetched from the queue again.",
        "queues resume", "/queue/resume", "p", ("paused",),
    ),
    VerbRow(
        "queue", "limit", "Limit", "At most so many of its jobs run at once, over all pools. Empty means no limit; 0 stops all of them.",
        "queues limit", "/queue/limit", "l", ("open", "paused"),
    ),
    VerbRow(
        "queue", "purge", "Purge", "Every job that waits in the queue now goes to the bin for ten minutes. Jobs that run are left alone.",
        "queues purge", "/queue/purge", "e", ("open", "paused"), asks=True, undoes=True,
    ),
    VerbRow(
        "pool", "quiet", "Quiet", "The pool finishes its jobs and fetches nothing more, until it is resumed or restarted.",
        "pools quiet", "/pool/quiet", "z", ("running",),
    ),
    VerbRow(
        "pool", "resume", "Resume", "The pool fetches jobs again.",
        "pools resume", "/pool/resume", "z", ("quiet",),
    ),
    VerbRow(
        "pool", "stop", "Stop", "The pool finishes its jobs within its time, gives back the rest, and ends. A supervised one is not restarted.",
        "pools stop", "/pool/stop", "s", ("running", "quiet"), asks=True,
    ),
    VerbRow(
        "worker", "stacks", "Stack", "Shows where the worker is in its code.",
        "pools stacks", "/pool/stacks", "t", ("busy",),
    ),
    VerbRow(
        "schedule", "run", "Run now", "One job is enqueued now, beside the ticks.",
        "periodic run", "/periodic/run", "r", ("open", "paused"),
    ),
    VerbRow(
        "schedule", "pause", "Pause", "Its ticks enqueue nothing until it is resumed.",
        "periodic pause", "/periodic/pause", "p", ("open",),
    ),
    VerbRow(
        "schedule", "resume", "Resume", "It enqueues jobs again, from its next tick on.",
        "periodic resume", "/periodic/resume", "p", ("paused",),
    ),
    VerbRow(
        "batch", "retry", "Retry dead", "Its dead members go back to their queues, those of nested batches too. The batch waits for them, and success can still come.",
        "batches retry", "/batch/retry", "r", ("open", "running", "failed"),
    ),
    VerbRow(
        "batch", "close", "Close", "Only its members can add jobs to it from now on, and it ends when they have ended.",
        "batches close", "/batch/close", "s", ("open",),
    ),
    VerbRow(
        "batch", "cancel", "Cancel", "Members that wait are dropped when their turn comes, and those that run are asked to stop. Its success callback never comes.",
        "batches cancel", "/batch/cancel", "c", ("open", "running"), asks=True,
    ),
    VerbRow(
        "batch", "repair", "Audit and repair", "Every job is searched for members of this batch. The records of the batch are corrected where its members are elsewhere.",
        "batches audit", "/batch/repair", "e", ("open", "running", "cancelled", "failed", "succeeded"),
    ),
    VerbRow(
        "workflow", "retry", "Retry failed", "Its nodes that are dead or cancelled run again, and then the nodes that need them.",
        "workflows retry", "/workflow/retry", "r", ("failed", "cancelled"),
    ),
    VerbRow(
        "workflow", "cancel", "Cancel", "Nodes that wait never run, jobs that wait are dropped when their turn comes, and those that run are asked to stop.",
        "workflows cancel", "/workflow/cancel", "c", ("running", "failed"), asks=True,
    ),
    VerbRow(
        "workflow", "repair", "Audit and repair", "Every job is searched for the nodes of this workflow. The records of the workflow are corrected where their jobs are elsewhere.",
        "workflows audit", "/workflow/repair", "e", ("running", "failed", "cancelled", "succeeded"),
    ),
    VerbRow(
        "node", "retry", "Retry", "The node runs again, and then all nodes that need it, also those that have completed. Their results are forgotten.",
        "workflows retry", "/workflow/retry", "r", ("completed", "dead", "skipped", "cancelled"), asks=True,
    ),
    VerbRow(
        "node", "skip", "Skip", "The workflow goes on without the node. Nodes that need nothing else are skipped, too; others get None in the place of its result.",
        "workflows skip", "/workflow/skip", "s", ("waiting", "dead", "cancelled"), asks=True,
    ),
    VerbRow(
        "node", "cancel", "Cancel", "The node and all that need it end. Nodes that wait never run, and a job that runs is asked to stop.",
        "workflows cancel", "/workflow/cancel", "c", ("waiting", "released", "running", "failed"), asks=True,
    ),
    VerbRow(
        "broken", "repair", "Repair", "The entry goes into its queue as the job that it should have been.",
        "broken repair", "/broken/repair", "e", ("broken",),
    ),
    VerbRow(
        "broken", "delete", "Delete", "These bytes go to the bin for ten minutes.",
        "broken delete", "/broken/delete", "d", ("broken",), asks=True, undoes=True,
    ),
    VerbRow(
        "due_job", "reschedule", "Reschedule", "Changes when the job is due.",
        "jobs reschedule", "/job/reschedule", "s", _DUE_LATER,
    ),
    VerbRow(
        "waiting_job", "move", "Move", "The job goes to the end of another queue and is run as that job. Its arguments must fit.",
        "jobs move", "/job/move", "m", ("waiting",),
    ),
    VerbRow(
        "all_jobs", "retry_in_waves", "Retry in waves", "The jobs that match are retried 1, 2, 4, 8 and so on at a time. It stops by itself when more than a fifth of them fail again; the rest stays dead.",
        "dead retry", "/jobs/retry_in_waves", "w", ("dead",),
    ),
    VerbRow(
        "deletion", "undo", "Undo", "The deleted jobs go back to where they were: waiting jobs to the head of their queue in their old order, others to their old time.",
        "undo", "/undo", "u", ("deleted",),
    ),
)  # fmt: skip


def row(target: VerbTarget, name: str) -> VerbRow:
    """The row of one verb."""
    return next(one for one in TABLE if (one.target, one.name) == (target, name))


def rows(target: VerbTarget) -> tuple[VerbRow, ...]:
    """The verbs for one kind of target."""
    return tuple(one for one in TABLE if one.target == target)


def offered(target: VerbTarget, state: str) -> tuple[VerbRow, ...]:
    """The verbs that menus offer for a target in this state."""
    return tuple(one for one in rows(target) if state in one.offered)


def offered_for_all(state: State) -> tuple[VerbRow, ...]:
    """The verbs that menus offer for all jobs of a state, or for all that match a filter."""
    return tuple(one for one in offered("job", state) if state in one.bulk)


def queue_state(queue: Queue) -> str:
    """The state of a queue, as the table has it."""
    return "paused" if queue.paused else "open"


def schedule_state(schedule: Periodic) -> str:
    """The state of a schedule, as the table has it."""
    return "paused" if schedule.paused else "open"


def pool_state(status: Status) -> str:
    """The state of a pool, as the table has it."""
    return "stopping" if status.stopping else "quiet" if status.quiet else "running"
