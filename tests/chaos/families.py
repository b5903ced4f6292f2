"""Jobs of a chaos run that belong together: atomic jobs and their children, members and callbacks of batches, nodes.

What an attempt enqueues that is stored only if the attempt completes, it notes as pending before, with its own place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chaos.jobs import Run, _wait, digest, follow, here, pool
from dayjob import Job
from dayjob.errors import BadOption, StoreError, Unavailable, Unknown
from dayjob.job import new_id, running

#: Children of one parent that are enqueued one by one; the rest goes as one bulk.
ONE_BY_ONE = 50


# Atomic jobs.


@pool.job(atomic=True, backoff=0.3)
def parent(job: Job, serial: str, count: int, plan: str = "ok", data: Any = None) -> None:
    """Enqueues its children before it fails, if it does."""
    with Run(job, serial, data) as run:
        for n in range(min(count, ONE_BY_ONE)):
            child.enqueue(parent=serial, n=n, place=run.place)
        child.enqueue_many([{"parent": serial, "n": n, "place": run.place} for n in range(ONE_BY_ONE, count)])
        follow(plan, job)


@pool.job
def child(job: Job, parent: str, n: int, place: str) -> None:
    """One line in a file that outlives its process."""
    os.write(here().children, f"{parent} {n} {place} {job.id}\n".encode())


# Batches.


@pool.job(backoff=0.3)
def member(
    job: Job, serial: str, plan: str = "ok", data: Any = None, seconds: float = 0.0, adds: int = 0
) -> None:
    with Run(job, serial, data):
        _wait(seconds, job)
        _add_members(job, serial, adds)
        follow(plan, job)


@pool.job(backoff=0.3)
async def amember(job: Job, serial: str, plan: str = "ok", data: Any = None) -> None:
    with Run(job, serial, data):
        follow(plan, job)


@pool.job(atomic=True, backoff=0.3)
def atomic_member(job: Job, serial: str, plan: str = "ok", data: Any = None, adds: int = 0) -> None:
    """Adds members that exist only if it completes."""
    with Run(job, serial, data) as run:
        _add_pending(job, run, serial, adds)
        follow(plan, job)


@pool.job
def called(job: Job) -> None:
    """The callback of a batch; its id names the batch and the event."""
    with Run(job, job.id):
        pass


def _new_serials(serial: str, count: int) -> list[str]:
    attempt: Any = running.get()
    return [f"{serial}/{attempt.token}/{new_id()}" for _ in range(count)]


def _add_members(job: Job, serial: str, count: int) -> None:
    """Add members at once, and note the answer. A retry adds others."""
    if not count:
        return
    write, serials = here().ledger.write, _new_serials(serial, count)
    for one in serials:
        write("asked", serial=one, name="amember", plan="ok", digest=digest(None), group=job.batch_id)
    answer = "unknown"
    try:
        with job.batch:
            jobs = [amember.enqueue(serial=one) for one in serials]
        answer = "stored"
    except StoreError as error:
        sent = isinstance(error, Unknown) or (isinstance(error, Unavailable) and error.sent)
        answer = "unknown" if sent else "refused"
    except BadOption:
        # The attempt was taken away and the batch has ended with another one.
        answer = "refused"
    finally:
        for at, one in enumerate(serials):
            facts = {"job": jobs[at].id} if answer == "stored" else {}
            write(answer, serial=one, **facts)


def _note_pending(run: Run, serial: str, serials: Sequence[str], name: str, group: str) -> None:
    pool_id, _, token = run.place.partition("/")
    for one in serials:
        here().ledger.write(
            "pending", serial=one, name=name, plan="ok", digest=digest(None), group=group, parent=serial, pool=pool_id, token=token
        )  # fmt: skip


def _add_pending(job: Job, run: Run, serial: str, count: int) -> None:
    if not count:
        return
    serials = _new_serials(serial, count)
    _note_pending(run, serial, serials, "member", job.batch_id or "")
    with job.batch:
        for one in serials:
            member.enqueue(serial=one)


# Workflows.


@pool.job(backoff=0.3)
def node(
    job: Job, serial: str, plan: str = "ok", data: Any = None, inputs: list[str | None] | None = None, adds: int = 0
) -> str:  # fmt: skip
    """Returns its serial."""
    with Run(job, serial, data, _shown(inputs)) as run:
        _add_nodes(job, run, serial, adds)
        follow(plan, job)
    return serial


@pool.job(backoff=0.3)
async def anode(
    job: Job, serial: str, plan: str = "ok", data: Any = None, inputs: list[str | None] | None = None
) -> str:
    with Run(job, serial, data, _shown(inputs)):
        follow(plan, job)
    return serial


def _shown(inputs: Sequence[str | None] | None) -> str:
    return msgspec.json.encode(inputs).decode() if inputs else ""


def _add_nodes(job: Job, run: Run, serial: str, count: int) -> None:
    if not count:
        return
    serials = _new_serials(serial, count)
    _note_pending(run, serial, serials, "anode", job.workflow_id or "")
    add: Callable[..., Any] = job.workflow.add
    for one in serials:
        add(anode, serial=one)
