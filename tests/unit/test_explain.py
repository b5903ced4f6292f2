"""Why a job is not running: one obstacle for each state of a queue and its pools, and one sentence for each reason."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from dayjob.explain.obstacles import (
    UNATTENDED,
    AllBusy,
    AllQuiet,
    AtLimit,
    Fleet,
    NoPool,
    NoWorker,
    Obstacle,
    ObstacleKind,
    QueuePaused,
    WrongType,
    obstacle,
)
from dayjob.explain.reasons import (
    HolderDied,
    JobDead,
    JobDone,
    JobDue,
    JobFetched,
    JobNotFound,
    JobRunning,
    JobWaiting,
    ReasonKind,
)
from dayjob.explain.words import sentence
from dayjob.store.ops.inspect import Queue
from dayjob.store.ops.pools import LoopBlock, Pool, Status


def queue(**more: Any) -> Queue:
    return Queue(**{"name": "a", "size": 1, "age": 1.0, "paused": False, "limit": None, "held": 0, "rung": False, **more})  # fmt: skip


def status(**more: Any) -> Status:
    return Status(**{"id": "p1", "host": "box", "pid": 7, "names": ("a",), "concurrency": 2, **more})


def pool(lease: float = 10.0, **more: Any) -> Pool:
    return Pool("p1", lease, status(**more))


NO_OTHER = {"blocked": (), "full": (), "threadless": ()}


@pytest.mark.parametrize(
    ("look", "pools", "expected"),
    [
        (queue(), [pool()], None),
        (queue(wrong=True, paused=True), [pool()], WrongType()),
        (queue(paused=True, paused_by="ada", paused_at=5.0), [], QueuePaused("ada", 5.0)),
        (queue(), [], NoPool()),
        (queue(), [pool(lease=-1.0)], NoPool()),
        # That no pool runs comes before the limit: the attempts that hold it are dead, and a pool would free it.
        (queue(limit=1, held=1), [], NoPool()),
        (queue(), [pool(names=("b",))], NoWorker(1, 0)),
        (queue(), [Pool("p1", 10.0, None)], NoWorker(1, 1)),
        (queue(), [pool(quiet=True)], AllQuiet(1)),
        (queue(limit=2, held=2), [pool()], AtLimit(2, 2)),
        (queue(limit=2, held=1), [pool()], None),
        (queue(), [pool(held=2)], AllBusy((), (status(held=2),), ())),
        (queue(size=0), [pool(held=2)], None),
        (queue(), [pool(held=2), pool()], None),
        (queue(), [pool(held=2), pool(quiet=True)], AllBusy((), (status(held=2),), ())),
    ],
)
def test_one_obstacle_keeps_a_queue_from_being_fetched(look, pools, expected):
    assert obstacle(look, Fleet(pools)) == expected


def test_a_pool_that_is_blocked_or_has_no_thread_left_is_busy():
    blocked = status(async_names=("a",), loop_blocked=LoopBlock(1.0, "slow", "id1"))
    threadless = status(threads=1, threads_busy=1)
    found = obstacle(queue(), Fleet([Pool("p1", 1.0, blocked), Pool("p2", 1.0, threadless)]))
    assert found == AllBusy((blocked,), (), (threadless,))


def test_the_kinds_are_the_closed_set_that_programs_compare():
    kinds = {one.kind for one in get_args(Obstacle)}
    assert kinds == set(get_args(ObstacleKind))
    assert set(UNATTENDED) < kinds
    assert kinds < set(get_args(ReasonKind))


def waiting(why: Obstacle | None = None, **more: Any) -> JobWaiting:
    return JobWaiting(**{"queue": "a", "ahead": 0, "obstacle": why, "expired": False, "holders": (), "now": 100.0, **more})  # fmt: skip


BUSY = "See `dayjob jobs ls --state running`, or start more workers."
STUCK = "`dayjob pools stacks p1` shows where the stuck jobs are in their code; restarting that process frees its workers."
BLOCKED = LoopBlock(90.0, "slow", "id1")


@pytest.mark.parametrize(
    ("reason", "kind", "words"),
    [
        (waiting(), "next", 'Waits in the queue "a" (it is the next): it is about to be fetched.'),
        (
            waiting(ahead=1200, per_minute=600.0),
            "next",
            ('Waits in the queue "a" (1,200 ahead of it): it is about to be fetched;'
            " at the pace of the last minutes its turn comes in about 2 min."),
        ),
        (waiting(expired=True), "expired", "it has expired and is discarded when its turn comes."),
        (waiting(QueuePaused("", None)), "paused", ": its queue is paused."),
        (waiting(QueuePaused("ada", 40.0)), "paused", ": its queue was paused by ada 60 s ago."),
        (waiting(NoPool()), "no_pool", ": no pool is running."),
        (waiting(NoWorker(1, 1)), "no_worker", "no live pool has this job (1 pool, 1 not reporting yet)."),
        (waiting(AllQuiet(1)), "quiet", "the only pool that has this job is quiet."),
        (waiting(AllQuiet(2)), "quiet", "all 2 pools that have this job are quiet."),
        (
            waiting(AtLimit(1, 1), holders=("p1/1:a",)),
            "at_limit",
            "its limit is reached (1 of 1 running), held by p1/1:a.",
        ),
        (waiting(WrongType()), "wrong_type", "the key of its queue has a wrong type."),
        (
            waiting(AllBusy((), (status(concurrency=1),), ())),
            "busy",
            f"the only worker of box/7 is busy.\n    {BUSY}",
        ),
        (
            waiting(AllBusy((), (status(stuck=2),), ())),
            "busy",
            f"all 2 workers of box/7 are busy; 2 of them are stuck past their timeout.\n    {STUCK}",
        ),
        (
            waiting(AllBusy((), (), (status(concurrency=9, threads=1),))),
            "busy",
            ("the only thread for plain functions is busy (threads=1, concurrency=9)."
            "\n    Raise threads=, or make these jobs `async def`."),
        ),
        (
            waiting(AllBusy((status(loop_blocked=BLOCKED),), (), ())),
            "busy",
            ('the event loop of box/7 has been blocked for 10 s by "slow" (id id1).'
            '\n    Await what takes long in "slow", or make it a plain `def`.'),
        ),
        (
            JobFetched(Status(id="p1"), None, cancelled=False, now=0.0),
            "starting",
            "Fetched by pool p1: about to start, or started less than 0.5 s ago.",
        ),
        (
            JobFetched(status(), AllBusy((), (status(),), ()), cancelled=True, now=0.0),
            "not_started",
            ("Fetched by box/7, but not started: all 2 workers of box/7 are busy."
            f" An operator asked it to end; it will not run again.\n    {BUSY}"),
        ),
        (
            JobRunning(status(), 30.0, "row 3", blocks=False, cancelled=False),
            "running",
            "Running for 30 s on box/7: row 3.",
        ),
        (HolderDied("p1"), "pool_died", "Was running on pool p1, which died; its attempts are being rescued."),
        (JobDue(42.0, 0, "", None), "due_later", "Due in 42 s."),
        (
            JobDue(-100.0, 2, "ValueError: no\nmore", None),
            "overdue",
            ("Was due 100 s ago after 2 fails, the last: ValueError: no:"
            " no pool is the leader, so nothing moves it to its queue."),
        ),
        (JobDead(7200.0, "boom", "b"), "dead", "Died 2.0 h ago: boom (job b has its unique key)."),
        (JobDead(7200.0, "TooLarge: too large.", ""), "dead", "Died 2.0 h ago: TooLarge: too large."),
        (JobDead(None, "", ""), "dead", "Dead; only its error is kept."),
        (JobDone(18000.0), "done", "Completed, and kept for another 5.0 h."),
        (JobDone(None), "done", "Completed."),
        (JobNotFound("x"), "not_found", 'No job "x" waits, runs or is kept: it completed, was deleted or never'),
    ],
)  # fmt: skip
def test_each_reason_has_a_kind_and_a_sentence(reason, kind, words):
    assert reason.kind == kind
    assert words in sentence(reason)
