"""The verdict: how everything stands, in words. All is well, or what is not, the worst first."""

from __future__ import annotations

from functools import partial

from dayjob import wording
from dayjob.admin.desk import Desk
from dayjob.admin.metrics import failing
from dayjob.admin.views import Level, Note, Sizes, Verdict
from dayjob.store.ops import inspect, pools, rollups
from dayjob.store.ops.figures import Counts
from dayjob.store.ops.inspect import Queue
from dayjob.store.ops.pools import Condemned, Pool
from dayjob.store.steps import Steps, ask
from dayjob.wording import counted

#: Seconds a job may wait, a due job may stay unmoved, and a dead pool may stay unswept, before it is said.
MOST_WAIT = 60.0
MOST_OVERDUE = 10.0
MOST_CONDEMNED = 60.0
#: What share of the attempts, and how many, must fail within the last ten minutes and this one before it is said.
FAILING = 0.1
LEAST_FAILED = 5
WINDOW = 10

_ORDER: dict[Level, int] = {"error": 0, "warning": 1, "ok": 2}


def verdict(desk: Desk) -> Steps[Verdict]:
    """How everything stands, in words. A bounded look: about fifteen short reads."""
    overview = yield from inspect.all_queues(desk.keys)
    registered = yield from pools.pools(desk.keys)
    condemned = yield from pools.condemned(desk.keys)
    sizes = yield from inspect.sizes(desk.keys)
    now = overview.now
    last = int(now // 60)
    read = partial(desk.shelf.minutes, now=now)
    minutes = yield from rollups.series(desk.keys, last - WINDOW, last, 1, read)
    notes = [
        *_about_pools(overview.queues, registered, condemned, now),
        *_about_queues(overview.queues, registered),
        *_about_failures(minutes),
        *(yield from _about_due(desk, now, sizes)),
        *_about_sets(sizes),
    ]
    notes.sort(key=lambda note: _ORDER[note.level])
    level: Level = notes[0].level if notes else "ok"
    sentence = "; ".join(note.text for note in notes[:4]) or "All is well"
    if len(notes) > 4:
        sentence += f"; and {len(notes) - 4} more"
    # A name keeps its own first letter.
    if not (notes and notes[0].subject and sentence.startswith(notes[0].subject)):
        sentence = sentence[0].upper() + sentence[1:]
    return Verdict(
        level, f"{sentence}.", tuple(notes), now,
        waiting=sum(queue.size for queue in overview.queues),
        running=sum(sum(pool.status.running.values()) for pool in registered if pool.status),
        sizes=sizes, pools=len(registered), workers=sum(pool.status.concurrency for pool in registered if pool.status),
    )  # fmt: skip


def _about_pools(
    queues: tuple[Queue, ...], registered: list[Pool], condemned: list[Condemned], now: float
) -> list[Note]:
    found = []
    waiting = sum(queue.size for queue in queues)
    if not any(pool.lease > 0 for pool in registered) and waiting:
        found.append(Note("error", "", f"no pool is running and {counted(waiting, 'job')} wait"))
    late = [one for one in condemned if now - one.since > MOST_CONDEMNED]
    if late:
        held = sum(one.held for one in late)
        text = f"{counted(held, 'attempt')} of {counted(len(late), 'dead pool')} wait to be rescued"
        found.append(Note("error", late[0].id, text))
    stuck = [
        worker.name for pool in registered if pool.status for worker in pool.status.workers if worker.stuck
    ]
    if stuck:
        found.append(Note("warning", stuck[0], f"{counted(len(stuck), 'worker')} hang past their timeout"))
    return found


def _about_queues(queues: tuple[Queue, ...], registered: list[Pool]) -> list[Note]:
    found = [
        Note("error", queue.name, f"the key of queue {queue.name} has a wrong type")
        for queue in queues
        if queue.wrong
    ]
    live = [pool for pool in registered if pool.lease > 0]
    waiting = [queue for queue in queues if queue.size and not queue.wrong]
    for queue in waiting:
        if queue.paused:
            text = f"{queue.name} is paused and {counted(queue.size, 'job')} wait"
            found.append(Note("warning", queue.name, text))
    open_ones = [queue for queue in waiting if not queue.paused]
    if live and all(pool.status is not None for pool in live):
        known = {name for pool in live if pool.status for name in pool.status.names}
        stray = [queue for queue in open_ones if queue.name not in known]
        if stray:
            some = f" ({', '.join(queue.name for queue in stray[:3])}{', ...' if len(stray) > 3 else ''})"
            has = "has" if len(stray) == 1 else "have"
            found.append(
                Note("error", stray[0].name, f"{counted(len(stray), 'queue')} {has} no worker{some}")
            )
    old = max(open_ones, key=lambda queue: queue.age or 0.0, default=None)
    if old is not None and (old.age or 0.0) > MOST_WAIT:
        text = f"the oldest job waits {wording.span(old.age or 0.0)} ({old.name})"
        found.append(Note("warning", old.name, text))
    return found


def _about_failures(minutes: list[Counts]) -> list[Note]:
    found = []
    names = {name for minute in minutes for name in minute.fails}
    failed = {name: sum(minute.failed(name) for minute in minutes) for name in names}
    for name, number in sorted(failed.items(), key=lambda item: (-item[1], item[0])):
        share = failing(minutes, name) or 0.0
        if number >= LEAST_FAILED and share >= FAILING:
            found.append(Note("warning", name, f"{name} fails {share:.0%}"))
    return found


def _about_due(desk: Desk, now: float, sizes: Sizes) -> Steps[list[Note]]:
    found = []
    for source, name, size in (
        (desk.keys.scheduled, "scheduled", sizes.scheduled), (desk.keys.retry, "retry", sizes.retry),
    ):  # fmt: skip
        if size <= 0:
            continue
        first = yield from ask(inspect.page(source, size=1))
        late = now - (first.entries[0].at or now) if first.entries else 0.0
        if late > MOST_OVERDUE:
            text = f"jobs in {name} are overdue by {wording.span(late)}"
            found.append(Note("error", name, text))
    return found


def _about_sets(sizes: Sizes) -> list[Note]:
    found = [
        Note("error", name, f"the key {name} has a wrong type")
        for name in ("scheduled", "retry", "dead", "done")
        if getattr(sizes, name) < 0
    ]
    if sizes.broken > 0:
        text = f"{counted(sizes.broken, 'entry').replace('entrys', 'entries')} could not be read"
        found.append(Note("warning", "broken", text))
    return found
