"""Actions on everything that matches a filter: counted first, then done in bounded steps with progress.

What comes in after the beginning is left alone. A line in the audit at the beginning and one at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dayjob.admin.actions import Verb
from dayjob.admin.desk import Desk, note
from dayjob.admin.filters import Filter, age_of, filter_of
from dayjob.admin.jobs import source_of
from dayjob.admin.views import Count, Progress, State, Tally
from dayjob.errors import BadOption
from dayjob.store.op import Op
from dayjob.store.ops import inspect, operate
from dayjob.store.ops.inspect import Kept, Page
from dayjob.store.ops.maintain import BATCH
from dayjob.store.ops.operate import MOST_DEEP
from dayjob.store.steps import Steps, ask, ask_all
from dayjob.wording import counted

Report = Callable[[Progress], None]

#: What can be done to all jobs of a state.
ABLE: dict[str, tuple[Verb, ...]] = {
    "dead": ("retry", "delete"), "retry": ("retry", "run_now", "delete", "kill"),
    "scheduled": ("retry", "run_now", "delete", "kill"), "done": ("delete",), "waiting": ("delete", "kill"),
}  # fmt: skip


def count(
    desk: Desk,
    state: State,
    *,
    where: Filter | str | None = None,
    name: str | None = None,
    most: int = 100_000,
) -> Steps[Count]:
    """How many jobs match; `most` entries are looked at. Of a queue, the first 10,000."""
    wanted = filter_of(where)
    if state == "waiting":
        return (yield from _count_waiting(desk, _queue(wanted, name), wanted))
    source = source_of(desk.keys, state)
    if wanted.empty:
        total = (yield from ask(inspect.page(source, size=1))).total
        return Count(total, total, total)
    matched = looked = 0
    seen = yield from ask(inspect.page(source, size=inspect.MOST_ENTRIES))
    total = seen.total
    while seen.entries:
        matched += len(_matching(state, seen, seen.entries, wanted))
        looked += len(seen.entries)
        if seen.next is None:
            return Count(matched, max(looked, total), total)
        if looked >= most:
            break
        seen = yield from ask(inspect.page(source, after=seen.next, size=inspect.MOST_ENTRIES))
    return Count(matched, looked, total)


def _count_waiting(desk: Desk, name: str, wanted: Filter) -> Steps[Count]:
    matched = looked = 0
    while True:
        size = min(inspect.MOST_ENTRIES, MOST_DEEP - looked)
        seen = yield from ask(inspect.peek(desk.keys, name, offset=looked, size=size))
        if wanted.empty:
            return Count(seen.total, seen.total, seen.total)
        matched += len(_matching("waiting", seen, seen.entries, wanted))
        looked += len(seen.entries)
        if not seen.entries or looked >= min(seen.total, MOST_DEEP):
            return Count(matched, looked, seen.total)


def apply(
    desk: Desk,
    verb: Verb,
    state: State,
    *,
    where: Filter | str | None = None,
    name: str | None = None,
    most: int | None = None,
    progress: Report | None = None,
) -> Steps[Tally]:
    """The action on every job of a state that matches, `most` at most, in steps of 100. Raises BadOption.

    Of a queue the first 10,000 jobs are looked at; to empty one use purge.
    """
    if verb not in ABLE.get(state, ()):
        able = ", ".join(ABLE.get(state, ())) or "nothing"
        raise BadOption(f"{verb} of all jobs in {state}: there can be done {able}")
    wanted = filter_of(where)
    report = progress or (lambda _: None)
    queue = _queue(wanted, name) if state == "waiting" else ""
    subject = f"{queue or 'jobs'} in {state}" + ("" if wanted.empty else f" where {wanted}")
    noted = yield from note(desk, f"{verb} all", subject, "begun")
    if state == "waiting":
        tally = yield from _over_queue(desk, verb, queue, wanted, most, report)
    else:
        tally = yield from _over_set(desk, verb, state, wanted, most, report)
    says = f"{counted(tally.matched, 'job')} matched, {tally.changed:,} changed."
    if tally.changed < tally.matched:
        says += f" {tally.matched - tally.changed:,} stayed: they moved on, cannot be read, or their unique key is another's."
    noted = (yield from note(desk, f"{verb} all", subject, says)) and noted
    return Tally(tally.looked, tally.matched, tally.changed, says, noted)


def _queue(wanted: Filter, name: str | None) -> str:
    queue = name or wanted.name
    if not queue:
        raise BadOption("which queue? Give its name: each job name is a queue of its own")
    return queue


def _matching(state: State, seen: Page, entries: Sequence[Kept], wanted: Filter) -> list[Kept]:
    return [
        entry for entry in entries if wanted.matches(entry.job, age_of(state, entry.job, entry.at, seen.now))
    ]


def _over_set(
    desk: Desk, verb: Verb, state: State, wanted: Filter, most: int | None, report: Report
) -> Steps[Progress]:
    source = source_of(desk.keys, state)
    seen = yield from ask(inspect.page(source, size=BATCH))
    # The server's time is cut to a millisecond, and a moment of others may not be.
    began, total = seen.now + 0.001, seen.total
    looked = matched = changed = 0
    while seen.entries and looked < total:
        entries = [entry for entry in seen.entries if state != "dead" or (entry.at or 0.0) <= began]
        meant = _matching(state, seen, entries, wanted)
        if most is not None:
            meant = meant[: max(0, most - matched)]
        changed += yield from _change(desk, verb, state, source, meant, seen.now)
        matched += len(meant)
        looked += len(seen.entries)
        report(Progress(min(looked, total), total, matched, changed))
        if seen.next is None or len(entries) < len(seen.entries) or (most is not None and matched >= most):
            break
        seen = yield from ask(inspect.page(source, after=seen.next, size=BATCH))
    return Progress(min(looked, total), total, matched, changed)


def _change(desk: Desk, verb: Verb, state: State, source: str, meant: list[Kept], now: float) -> Steps[int]:
    members = [entry.member for entry in meant]
    if verb == "delete":
        return (yield from operate.delete_many(desk.keys, source, members))
    readable = [entry.member for entry in meant if entry.job is not None]
    if verb == "kill":
        why = f"killed by {desk.actor}"
        kills: list[Op[bool]] = [
            operate.kill(desk.keys, source, member, now=now, why=why) for member in readable
        ]
        return sum((yield from ask_all(kills)))
    if state != "dead":
        return (yield from ask(operate.run_now(desk.keys, source, readable, now=now))) if readable else 0
    answers = yield from ask_all([operate.revive(desk.keys, member, now=now) for member in readable])
    return sum(answer.fate == "moved" for answer in answers)


def _over_queue(
    desk: Desk, verb: Verb, name: str, wanted: Filter, most: int | None, report: Report
) -> Steps[Progress]:
    """From the head of the queue on; what is taken out moves the rest up."""
    looked = matched = changed = kept = 0
    total: int | None = None
    while True:
        seen = yield from ask(inspect.peek(desk.keys, name, offset=kept, size=BATCH))
        total = min(seen.total, MOST_DEEP) if total is None else total
        entries = seen.entries[: total - looked]
        meant = [
            (kept + place, entry)
            for place, entry in enumerate(entries)
            if wanted.matches(entry.job, age_of("waiting", entry.job, None, seen.now))
            and (verb == "delete" or entry.job is not None)
        ]
        if most is not None:
            meant = meant[: max(0, most - matched)]
        # The deepest first, so that the places of the others hold.
        taken = yield from ask_all(
            [
                operate.unqueue(desk.keys, name, entry.member, place, now=seen.now, kill=verb == "kill")
                for place, entry in reversed(meant)
            ]
        )
        matched, changed, looked = matched + len(meant), changed + sum(taken), looked + len(entries)
        kept += len(entries) - sum(taken)
        report(Progress(looked, total, matched, changed))
        if not entries or looked >= total or (most is not None and matched >= most):
            return Progress(looked, total, matched, changed)
