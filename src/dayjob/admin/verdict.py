"""The verdict: whether anything is wrong in a namespace, as sentences, the worst first."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dayjob.admin import keys, server_checks
from dayjob.admin.doctor import MAX_CONDEMNED_SECONDS, MAX_OVERDUE_SECONDS
from dayjob.admin.metrics import failing
from dayjob.admin.session import Session
from dayjob.admin.views import Level, Note, NoteKind, Sizes, Verdict
from dayjob.admin.views.limits import KeysView
from dayjob.errors import Rejected
from dayjob.explain.obstacles import UNATTENDED, Fleet, obstacle
from dayjob.explain.words import place, quoted
from dayjob.store.keys import Keys
from dayjob.store.ops import broken, events, health, inspect, maintain, pools, rollups
from dayjob.store.ops.figures import Counts
from dayjob.store.ops.health import Health
from dayjob.store.ops.inspect import Overview, Queue
from dayjob.store.ops.outbox import MAX_SILENCE_SECONDS, MAX_UNSENT_SECONDS, OutboxStatus, outbox_status
from dayjob.store.ops.pools import Condemned, Pool, Status
from dayjob.store.steps import Steps, ask
from dayjob.text import counted, doing, span

#: Seconds a job may wait, and an event loop may be blocked, before it is worth a note.
MAX_WAIT_SECONDS = 60.0
MAX_BLOCKED_SECONDS = 2.0
#: What share of the attempts, and how many, must fail within the last ten minutes and this one to be worth a note.
FAILING_SHARE = 0.1
MIN_FAILED = 5
WINDOW_MINUTES = 10
#: How many minutes back the beginning of such failures is looked for.
MAX_MINUTES_BACK = 59

#: From how many waiting jobs on, and with what share of them, one key is named; and how many keys are read for it.
MIN_NOISY = 100
NOISY_SHARE = 0.8
KEYS_READ = 500

#: What to do about each kind of note.
TODO: dict[NoteKind, str] = {
    "unused": "Start a pool, or choose another namespace.",
    "no_pool": "Start one: dayjob worker app.jobs:pool",
    "not_rescued": "Start a pool: the leader puts them back into their queues.",
    "stuck": "Look at the stack of the worker, or end the job with dayjob jobs kill ID --running.",
    "loop_blocked": "Look at its stack: a blocking call belongs into a thread or a plain function.",
    "arguments": "Deploy the same version of the program everywhere.",
    "wrong_type": "Another program wrote this key: dayjob doctor shows what to do.",
    "outbox": "Run a pool that reaches the database, or dayjob relay app.jobs:pool, and read its log.",
    "paused": "Resume the queue when its jobs may run again.",
    "no_worker": "Start a pool that has this job.",
    "late": "Add workers, or look at what holds them.",
    "noisy": "Give the key a limit or less weight, or pause it: dayjob queues keys NAME.",
    "failing": "Read the error on the page of failures.",
    "overdue": "Check that a pool runs and reaches Redis: its leader moves these jobs.",
    "broken": "Repair or delete what cannot be read.",
    "dead": "Retry them after a fix, or delete them.",
    "eviction": "Set maxmemory-policy to noeviction.",
    "memory_only": "Turn on appendonly or snapshots.",
}

_ORDER: dict[Level, int] = {"error": 0, "warning": 1, "notice": 2, "ok": 3}


def verdict(session: Session) -> Steps[Verdict]:
    """Whether anything is wrong in the namespace, as sentences. Costs about fifteen short reads."""
    seen = yield from _first_seen(session.keys)
    overview = yield from inspect.all_queues(session.keys)
    registered = yield from pools.pools(session.keys)
    condemned = yield from pools.condemned(session.keys)
    sizes = yield from inspect.sizes(session.keys)
    now = overview.now
    last = int(now // 60)
    read = partial(session.minute_cache.minutes, now=now)
    minutes = yield from rollups.series(session.keys, last - WINDOW_MINUTES, last, 1, read)
    live = [pool for pool in registered if pool.lease > 0]
    fleet = Fleet(registered)
    outbox = (yield from outbox_status(session.keys)) or OutboxStatus()
    used = bool(overview.queues or registered) or (yield from ask(inspect.ever_used(session.keys)))
    notes = [
        *(
            (yield from _about_pools(session, overview, fleet, condemned))
            if used
            else [_unused(session.keys)]
        ),
        *_about_workers(fleet.statuses, now),
        *_about_queues(overview.queues, fleet, now),
        *_about_types(session.keys, overview.queues, sizes, seen),
        *(yield from _about_keys(session, overview)),
        *_about_arguments(live),
        *(yield from _about_failures(session, minutes, now)),
        *(yield from _about_due(session, now, sizes)),
        *(yield from _about_sets(session, sizes)),
        *_about_server((yield from session.minute_cache.server(now)), seen),
        *_about_outbox(outbox, now),
    ]
    notes.sort(key=lambda note: _ORDER[note.level])
    notes = [replace(note, todo=TODO[note.kind]) for note in notes]
    level: Level = notes[0].level if notes else "ok"
    sentence = "; ".join(note.text for note in notes[:4]) or "All is well"
    if len(notes) > 4:
        sentence += f"; and {len(notes) - 4} more"
    return Verdict(
        level, f"{sentence[0].upper()}{sentence[1:]}.", tuple(notes), now,
        waiting=sum(queue.size for queue in overview.queues),
        running=sum(sum(status.running.values()) for status in fleet.statuses),
        sizes=sizes, pools=fleet.pools, workers=sum(status.concurrency for status in fleet.statuses),
        unsent=outbox.unsent, unsent_age=outbox.age, relay_silence=outbox.silence,
    )  # fmt: skip


def _about_outbox(outbox: OutboxStatus, now: float) -> list[Note]:
    if outbox.silence > MAX_SILENCE_SECONDS:
        text = f"no relay has read the outbox for {span(outbox.silence)}, so its rows may wait"
        return [Note("error", "", text, "outbox", now - outbox.silence)]
    if outbox.age <= MAX_UNSENT_SECONDS:
        return []
    text = f"{counted(outbox.unsent, 'row')} of the outbox not sent for up to {span(outbox.age)}"
    return [Note("error", "", text, "outbox", now - outbox.age)]


def _unused(keys: Keys) -> Note:
    return Note("warning", "", f'nothing has ever run in namespace "{keys.namespace}"', "unused")


def _about_pools(
    session: Session, overview: Overview, fleet: Fleet, condemned: list[Condemned]
) -> Steps[list[Note]]:
    found = []
    now = overview.now
    waiting = sum(queue.size for queue in overview.queues)
    if not fleet.pools:
        ends = yield from events.lines(session.keys, ("stopped", "died"), 1)
        since = max((events.moment_of(raw) for some in ends for raw in some), default=0.0) or None
        level: Level = "error" if waiting else "warning"
        text = "no pool is running" + (f" and {doing(waiting, 'job', 'wait')}" if waiting else "")
        # Without a pool that ended, none has run since the oldest waiting job was enqueued.
        oldest = max((queue.age for queue in overview.queues if queue.age is not None), default=None)
        if since is None and oldest is not None:
            found.append(Note(level, "pools", text, "no_pool", now - oldest, or_earlier=True))
        else:
            found.append(Note(level, "pools", text, "no_pool", since))
    late = [one for one in condemned if now - one.since > MAX_CONDEMNED_SECONDS]
    if late:
        held = sum(one.held for one in late)
        wait = "waits" if held == 1 else "wait"
        text = f"{counted(held, 'attempt')} of {counted(len(late), 'dead pool')} {wait} to be rescued"
        found.append(Note("error", "pools", text, "not_rescued", min(one.since for one in late)))
    return found


def _about_workers(live: list[Status], now: float) -> list[Note]:
    """Workers that are stuck past their timeout, and event loops that are blocked."""
    found = []
    names = sorted({worker.name for status in live for worker in status.workers if worker.stuck})
    # Pools of older versions do not count them.
    stuck = sum(max(status.stuck, sum(one.stuck for one in status.workers)) for status in live)
    if stuck:
        are = "is stuck past its timeout" if stuck == 1 else "are stuck past their timeout"
        text = f"{counted(stuck, 'worker')} {are}{_listed(names)}"
        over = [
            one.started_at + (one.timeout or 0.0) for status in live for one in status.workers if one.stuck
        ]
        found.append(Note("warning", "busy", text, "stuck", min(over, default=None)))
    for status in live:
        block = status.loop_blocked
        if block is not None and now - block.since > MAX_BLOCKED_SECONDS:
            by = f" by {quoted(block.name)}" if block.name else ""
            text = f"the event loop of {place(status)} has been blocked for {span(now - block.since)}{by}"
            found.append(Note("warning", "busy", text, "loop_blocked", block.since))
    return found


def _about_keys(session: Session, overview: Overview) -> Steps[list[Note]]:
    """Queues in which one key has almost all waiting jobs, with how long the others wait."""
    found = []
    for queue in overview.queues:
        if not queue.by_key or queue.size < MIN_NOISY:
            continue
        view: KeysView = yield from keys.listing(session, queue.name, most=1, read=KEYS_READ)
        if not view.keys or view.total < 2 or view.keys[0].share < NOISY_SHARE:
            continue
        first = view.keys[0]
        others = f"{view.by[0]}s" if len(view.by) == 1 else "keys"
        wait = "" if view.others_wait is None else f"; other {others} wait {span(view.others_wait)}"
        text = f"{quoted(first.key)} has {first.share:.0%} of {quoted(queue.name)}{wait}"
        since = None if first.oldest is None else overview.now - first.oldest
        found.append(Note("notice", queue.name, text, "noisy", since))
    return found


def _about_arguments(live: list[Pool]) -> list[Note]:
    return [
        Note(
            "warning",
            name,
            f"{split.pools:,} pools disagree about the arguments of {quoted(name)}",
            "arguments",
            split.since,
        )
        for name, split in pools.contradictions(live).items()
    ]


def _listed(names: list[str]) -> str:
    """Some names in brackets; nothing for none."""
    some = ", ".join(map(quoted, names[:3]))
    return f" ({some}{', ...' if len(names) > 3 else ''})" if names else ""


def _about_queues(queues: tuple[Queue, ...], fleet: Fleet, now: float) -> list[Note]:
    kinds = {queue.name: why.kind for queue in queues if (why := obstacle(queue, fleet)) is not None}
    found = []
    waiting = [queue for queue in queues if queue.size and not queue.wrong]
    for queue in waiting:
        if kinds.get(queue.name) == "paused":
            text = f"{quoted(queue.name)} is paused and {doing(queue.size, 'job', 'wait')}"
            found.append(Note("warning", queue.name, text, "paused", queue.paused_at))
    # A pool that has not reported may have these jobs; that no pool runs is a note of its own.
    unattended = [queue for queue in waiting if kinds.get(queue.name) in UNATTENDED]
    if unattended and fleet.pools and not fleet.unreported:
        has = "has" if len(unattended) == 1 else "have"
        names = [queue.name for queue in unattended]
        text = f"{counted(len(names), 'queue')} {has} no worker{_listed(names)}"
        oldest = max((queue.age for queue in unattended if queue.age is not None), default=None)
        found.append(Note("error", names[0], text, "no_worker", None if oldest is None else now - oldest))
    running = [queue for queue in waiting if kinds.get(queue.name) != "paused"]
    old = max(running, key=lambda queue: queue.age or 0.0, default=None)
    if old is not None and (old.age or 0.0) > MAX_WAIT_SECONDS:
        text = f"the oldest job of {quoted(old.name)} has waited for {span(old.age or 0.0)}"
        found.append(Note("warning", old.name, text, "late", now - (old.age or 0.0)))
    return found


def _about_failures(session: Session, minutes: list[Counts], now: float) -> Steps[list[Note]]:
    found = []
    names = {name for minute in minutes for name in minute.fails}
    failed = {name: sum(minute.failed(name) for minute in minutes) for name in names}
    for name, number in sorted(failed.items(), key=lambda item: (-item[1], item[0])):
        share = failing(minutes, name) or 0.0
        if number >= MIN_FAILED and share >= FAILING_SHARE:
            text = f"{share:.0%} of {quoted(name)} fail"
            found.append(Note("warning", name, text, "failing"))
    if not found:
        return []
    last = minutes[-1].minute
    read = partial(session.minute_cache.minutes, now=now)
    hour = yield from rollups.series(session.keys, last - MAX_MINUTES_BACK, last, 1, read)
    return [_with_beginning(note, hour) for note in found]


def _with_beginning(note: Note, minutes: list[Counts]) -> Note:
    """Since when a name fails: since its first failure after ten minutes without one."""
    first = minutes[-1]
    for one in reversed(minutes):
        if first.minute - one.minute > WINDOW_MINUTES:
            return replace(note, since=first.minute * 60.0)
        if one.failed(note.subject):
            first = one
    return replace(note, since=first.minute * 60.0, or_earlier=True)


def _about_due(session: Session, now: float, sizes: Sizes) -> Steps[list[Note]]:
    found = []
    for source, name, size in (
        (session.keys.scheduled, "scheduled", sizes.scheduled), (session.keys.retry, "retry", sizes.retry),
    ):  # fmt: skip
        if size <= 0:
            continue
        first = yield from ask(inspect.page(source, size=1))
        late = now - (first.entries[0].at or now) if first.entries else 0.0
        if late > MAX_OVERDUE_SECONDS:
            text = f"jobs in {name} are overdue by {span(late)}"
            found.append(Note("error", name, text, "overdue", now - late))
    return found


def _about_sets(session: Session, sizes: Sizes) -> Steps[list[Note]]:
    """Sets with entries that need an operator, since the oldest of them."""
    found = []
    if sizes.broken > 0:
        text = f"{counted(sizes.broken, 'entry', 'entries')} could not be read"
        first = (yield from ask(broken.page(session.keys, size=1))).entries
        found.append(Note("warning", "broken", text, "broken", first[0].at if first else None))
    if sizes.dead > 0:
        text = f"{counted(sizes.dead, 'job')} {'is' if sizes.dead == 1 else 'are'} dead"
        oldest = (yield from ask(inspect.page(session.keys.dead, size=1))).entries
        found.append(Note("notice", "dead", text, "dead", oldest[0].at if oldest else None))
    return found


def _about_types(keys: Keys, queues: tuple[Queue, ...], sizes: Sizes, seen: dict[str, float]) -> list[Note]:
    """Queues and sets that cannot be read, since the leader first saw it."""
    wrong = [(one.name, keys.queue(one.name), f"of queue {quoted(one.name)}") for one in queues if one.wrong]
    wrong += [
        (name, getattr(keys, name), name)
        for name in ("scheduled", "retry", "dead", "done", "broken")
        if getattr(sizes, name) < 0
    ]
    return [
        Note("error", name, f"the key {words} has a wrong type", "wrong_type", seen.get(key), key in seen)
        for name, key, words in wrong
    ]


def _first_seen(keys: Keys) -> Steps[dict[str, float]]:
    try:
        return (yield from ask(maintain.first_seen(keys)))
    except Rejected:  # The key has a wrong type, until the leader replaces it.
        return {}


def _about_server(server: Health, seen: dict[str, float]) -> list[Note]:
    """Settings of the server that can lose jobs, since the leader first saw them."""
    found = []
    policy = server_checks.eviction_of(server)
    if policy not in ("", "noeviction"):
        # Without maxmemory the server is never full, until an operator sets one.
        level: Level = "error" if server_checks.memory_limit(server) else "warning"
        text = f"the server deletes keys when it is full (maxmemory-policy {policy})"
        found.append(Note(level, "redis", text, "eviction", seen.get("eviction"), "eviction" in seen))
    if health.writes_nothing(server.config):
        text = "the server keeps jobs in memory only: a restart loses them"
        found.append(
            Note("warning", "redis", text, "memory_only", seen.get("memory_only"), "memory_only" in seen)
        )
    return found
