"""Actions on everything that matches a filter: counted first, then done in bounded steps with progress.

Jobs that come in after the beginning are left alone. The audit gets a line at the beginning and one at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dayjob.admin import verbs
from dayjob.admin.bin import ended, new_deletion
from dayjob.admin.filters import Filter, filter_of
from dayjob.admin.job_lists import held, read_held
from dayjob.admin.jobs import source_of
from dayjob.admin.matcher import Matcher
from dayjob.admin.session import Session, write_audit
from dayjob.admin.verbs import Verb
from dayjob.admin.views import BulkProgress, State, Tally
from dayjob.errors import BadOption
from dayjob.store.ops import inspect, job_types, operate, partitions
from dayjob.store.ops.bin import Deletion, ask_bin
from dayjob.store.ops.inspect import Page, StoredEntry
from dayjob.store.ops.maintain import BATCH
from dayjob.store.ops.operate import MAX_DEEP
from dayjob.store.steps import Steps, ask, ask_all
from dayjob.text import counted


@dataclass(frozen=True, slots=True)
class BulkAction:
    """What is done to each job that matches."""

    verb: Verb | Literal["move"]
    #: Where deleted jobs go; None where they are deleted for good.
    deletion: Deletion | None = None
    #: Takes jobs out of a queue, each with how many were ahead of it; the answer is how many. None: by the verb.
    take: Callable[[str, Sequence[tuple[int, bytes]]], Steps[int]] | None = None

    @property
    def counter(self) -> operate.Counter:
        """Which total counts a job that was taken out."""
        return "cancelled" if self.verb == "cancel" else "deleted"


#: Is called after each step; if it returns False, the work stops there.
Report = Callable[[BulkProgress], object]

#: The past tense of each action, for the sentence of its tally.
_DID: dict[tuple[str, str], str] = {("cancel", "running"): "cancelling at their pool's next heartbeat"}


def apply(
    session: Session,
    verb: Verb,
    state: State,
    *,
    where: Filter | str | None = None,
    name: str | None = None,
    most: int | None = None,
    progress: Report | None = None,
    undo: bool = True,
) -> Steps[Tally]:
    """Apply an action to every job of a state that matches, at most `most`, in steps of 100. Raises BadOption.

    Waiting jobs need a name or a condition; without a name all queues are searched. Of a queue the first 10,000
    jobs are searched; to empty one use purge. The bin keeps deleted jobs for ten minutes; not with undo=False. When
    `progress` answers False, it stops there.
    """
    deleting = undo and verb in ("delete", "cancel") and state != "running"
    wanted = filter_of(where)
    queue = (name or wanted.name or "") if state == "waiting" else ""
    subject = f"{queue or 'jobs'} in {state}" + ("" if wanted.empty else f" where {wanted}")
    action = BulkAction(verb, new_deletion(session, "delete", subject, undo=deleting))
    tally = yield from _apply(session, action, state, wanted, queue, subject, most, progress)
    return replace(tally, undo=(yield from ended(action.deletion, tally.changed)))


def apply_to_failures(
    session: Session,
    verb: Verb,
    name: str,
    kind: str,
    states: Sequence[Literal["dead", "retry"]] = ("dead", "retry"),
    *,
    progress: Report | None = None,
    undo: bool = True,
) -> Steps[Tally]:
    """The action on every job of one group of failures, in each of these states; undone together."""
    wanted = Filter.of(name=name, kind=kind)
    subject = f"jobs where {wanted}"
    action = BulkAction(verb, new_deletion(session, "delete", subject, undo=undo and verb == "delete"))
    watched = Watched(progress)
    tallies: list[Tally] = []
    for state in dict.fromkeys(states):
        if not watched.stopped:
            where = f"jobs in {state} where {wanted}"
            tallies += [(yield from _apply(session, action, state, wanted, "", where, None, watched.answer))]
    searched, matched, changed = (
        sum(getattr(one, field) for one in tallies) for field in ("searched", "matched", "changed")
    )
    message = f"{counted(matched, 'job')} matched, {changed:,} changed."
    audited = all(one.audited for one in tallies)
    undo_id = yield from ended(action.deletion, changed)
    return Tally(searched, matched, changed, message, audited, undo_id)


def check_bulk(verb: Verb, state: State, wanted: Filter, queue: str) -> None:
    """Raises BadOption if a verb cannot be done to all jobs that are meant."""
    if state not in verbs.row("job", verb).bulk:
        able = [one.name for one in verbs.rows("job") if state in one.bulk]
        raise BadOption(f"{verb} is not possible for all jobs in {state}: use {' or '.join(able)}")
    if state == "waiting" and not queue and wanted.empty:
        raise BadOption(
            "which jobs? Give the name of a queue, or a condition: each job name is a queue of its own"
        )


def _apply(
    session: Session,
    action: BulkAction,
    state: State,
    wanted: Filter,
    queue: str,
    subject: str,
    most: int | None,
    progress: Report | None,
) -> Steps[Tally]:
    verb = action.verb
    if verb != "move":
        check_bulk(verb, state, wanted, queue)
    matcher = Matcher(session, state, wanted)
    yield from matcher.open()
    report = Watched(progress)
    audited = yield from write_audit(session, f"{verb} all", subject, "begun")
    if state == "waiting":
        tally = yield from over_queues(session, action, queue, matcher, most, report)
    elif state == "running":
        tally = yield from _over_running(session, matcher, most, report)
    else:
        tally = yield from _over_set(session, action, state, matcher, most, report)
    message = (
        f"{counted(tally.matched, 'job')} matched, {tally.changed:,} {_DID.get((verb, state), 'changed')}."
    )
    if report.stopped:
        message += f" Stopped after {tally.searched:,} of {tally.total:,}."
    if tally.changed < tally.matched:
        message += f" {tally.matched - tally.changed:,} unchanged: they moved on, cannot be read, or another job has their unique key."
    if matcher.hidden:
        message += f" {counted(matcher.hidden, 'job')} could not be compared: their arguments are hidden."
    audited = (yield from write_audit(session, f"{verb} all", subject, message)) and audited
    return Tally(tally.searched, tally.matched, tally.changed, message, audited)


def _matching(matcher: Matcher, seen: Page, entries: Sequence[StoredEntry]) -> Steps[list[StoredEntry]]:
    if matcher.wanted.reads_shown:
        yield from matcher.learn(entries)
    return [entry for entry in entries if matcher.fits(entry, seen.now)]


class Watched:
    """Reports progress, and remembers whether the caller asked to stop."""

    def __init__(self, progress: Report | None) -> None:
        self._progress = progress
        self.stopped = False
        #: The progress in the queues before this one, with the total of all; None if there is only one queue.
        self.before: BulkProgress | None = None

    def __call__(self, progress: BulkProgress) -> None:
        if self.before is not None:
            progress = _sum(self.before, progress)
        self.answer(progress)

    def answer(self, progress: BulkProgress) -> bool:
        """Report as it is; whether to go on."""
        if self._progress is not None and self._progress(progress) is False:
            self.stopped = True
        return not self.stopped


def _over_set(
    session: Session, action: BulkAction, state: State, matcher: Matcher, most: int | None, report: Watched
) -> Steps[BulkProgress]:
    source = source_of(session.keys, state)
    seen = yield from ask(inspect.page(source, size=BATCH))
    # Redis time is in whole milliseconds; scores that other clients wrote may be finer.
    began, total = seen.now + 0.001, seen.total
    searched = matched = changed = 0
    while seen.entries and searched < total:
        entries = [entry for entry in seen.entries if state != "dead" or entry.moment <= began]
        meant = yield from _matching(matcher, seen, entries)
        if most is not None:
            meant = meant[: max(0, most - matched)]
        changed += yield from _change(session, action, state, source, meant, seen.now)
        matched += len(meant)
        searched += len(seen.entries)
        report(BulkProgress(min(searched, total), total, matched, changed))
        fresh = state == "dead" and (seen.entries[-1].at or 0.0) > began
        if seen.next is None or fresh or report.stopped or (most is not None and matched >= most):
            break
        seen = yield from ask(inspect.page(source, after=seen.next, size=BATCH))
    return BulkProgress(min(searched, total), total, matched, changed)


def _change(
    session: Session, action: BulkAction, state: State, source: str, meant: list[StoredEntry], now: float
) -> Steps[int]:
    if action.verb in ("delete", "cancel"):
        members = [entry.member for entry in meant]
        return (
            yield from operate.delete_many(
                session.keys, source, members, count=action.counter, deletion=action.deletion
            )
        )
    readable = [entry.member for entry in meant if entry.job is not None]
    if action.verb == "kill":
        why = f"killed by {session.actor}"
        named = [entry.job.name for entry in meant if entry.job is not None]
        keeping = yield from job_types.keeping(session.keys, named)
        kills = [
            operate.kill(session.keys, source, member, now=now, why=why, keeping=keeping)
            for member in readable
        ]
        return sum((yield from ask_all(kills)))
    if state != "dead":
        return (yield from ask(operate.run_now(session.keys, source, readable, now=now))) if readable else 0
    answers = yield from ask_all([operate.revive(session.keys, member, now=now) for member in readable])
    return sum(answer.fate == "moved" for answer in answers)


def _sum(before: BulkProgress, here: BulkProgress) -> BulkProgress:
    return BulkProgress(
        before.searched + here.searched,
        before.total,
        before.matched + here.matched,
        before.changed + here.changed,
    )


def over_queues(
    session: Session, action: BulkAction, name: str, matcher: Matcher, most: int | None, report: Watched
) -> Steps[BulkProgress]:
    """The named queue, or each queue that can have jobs that match."""
    if name:
        places = [name] if "|" in name else (yield from partitions.lists_of(session.keys, name))
        if len(places) == 1:
            return (yield from _over_queue(session, action, name, matcher, most, report))
        total = (yield from inspect.overview(session.keys, [name])).queues[0].size
    else:
        overview = yield from inspect.all_queues(session.keys)
        queues = [
            one
            for one in overview.queues
            if one.size and not one.wrong and matcher.wanted.fits_name(one.name)
        ]
        total = sum(min(one.size, MAX_DEEP) for one in queues)
        places = []
        for queue in queues:
            places += (
                [queue.name]
                if not queue.by_key
                else (yield from partitions.lists_of(session.keys, queue.name))
            )
    done = BulkProgress(0, total, 0, 0)
    for place in places:
        report.before = done
        left = None if most is None else most - done.matched
        done = _sum(done, (yield from _over_queue(session, action, place, matcher, left, report)))
        if report.stopped or (most is not None and done.matched >= most):
            break
    return done


def _over_queue(
    session: Session, action: BulkAction, name: str, matcher: Matcher, most: int | None, report: Watched
) -> Steps[BulkProgress]:
    """Go through a queue from its head. Each job that is removed moves the rest up."""
    searched = matched = changed = kept = 0
    total: int | None = None
    while True:
        seen = yield from ask(inspect.peek(session.keys, name, offset=kept, size=BATCH))
        total = min(seen.total, MAX_DEEP) if total is None else total
        entries = seen.entries[: total - searched]
        fitting = yield from _matching(matcher, seen, entries)
        chosen = {id(entry) for entry in fitting if action.verb != "kill" or entry.job is not None}
        meant = [(kept + place, entry.member) for place, entry in enumerate(entries) if id(entry) in chosen]
        if most is not None:
            meant = meant[: max(0, most - matched)]
        taken = yield from _take_out(session, action, name, meant, seen.now)
        matched, changed, searched = matched + len(meant), changed + taken, searched + len(entries)
        kept += len(entries) - taken
        report(BulkProgress(searched, total, matched, changed))
        enough = most is not None and matched >= most
        if not entries or searched >= total or report.stopped or enough:
            return BulkProgress(searched, total, matched, changed)


def _take_out(
    session: Session, action: BulkAction, name: str, jobs: list[tuple[int, bytes]], now: float
) -> Steps[int]:
    """Delete or kill waiting jobs, each seen with so many ahead of it; the answer is how many were still there."""
    keys = session.keys
    if not jobs:
        return 0
    if action.take is not None:
        return (yield from action.take(name, jobs))
    if action.verb != "kill":
        gone = operate.unqueue_many(keys, name, jobs, count=action.counter, deletion=action.deletion)
        return int((yield from ask_bin(gone)))
    keeping = yield from job_types.keeping(keys, [name.partition("|")[0]])
    # The last first, so that the indexes of the others stay right.
    kills = [
        operate.unqueue(keys, name, payload, place, now=now, kill=True, keeping=keeping)
        for place, payload in reversed(jobs)
    ]
    return sum((yield from ask_all(kills)))


def _over_running(
    session: Session, matcher: Matcher, most: int | None, report: Watched
) -> Steps[BulkProgress]:
    """Ask the pools that hold the jobs. Each pool stops its own at its next heartbeat."""
    searched = matched = changed = 0
    now = yield from ask(inspect.now())
    attempts = yield from held(session)
    for first in range(0, len(attempts), BATCH):
        batch = attempts[first : first + BATCH]
        jobs = yield from read_held(session, batch)
        yield from matcher.learn(entry for _, _, entry in jobs)
        meant = [
            operate.cancel(session.keys, pool_id, token)
            for pool_id, token, entry in jobs
            if matcher.fits(entry, now, pool_id)
        ]
        if most is not None:
            meant = meant[: max(0, most - matched)]
        asked = yield from ask_all(meant)
        searched, matched, changed = searched + len(batch), matched + len(meant), changed + sum(asked)
        report(BulkProgress(searched, len(attempts), matched, changed))
        if report.stopped or (most is not None and matched >= most):
            break
    return BulkProgress(searched, len(attempts), matched, changed)
