"""Retry in waves: retries dead jobs a few at a time, and stops by itself when most of them fail again.

What became of a job is judged by where it is now: while it waits or is held, it has not ended; in retry or dead, it failed
again; if two looks find it nowhere, it has completed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dayjob.admin.bulk import Report
from dayjob.admin.filters import Filter, filter_of
from dayjob.admin.job_lists import count, held, read_held
from dayjob.admin.matcher import Matcher
from dayjob.admin.session import Session, write_audit
from dayjob.admin.views import BulkProgress, Tally
from dayjob.errors import BadOption
from dayjob.store.ops import consume, inspect, operate
from dayjob.store.ops.inspect import Cursor, Page, StoredEntry
from dayjob.store.ops.maintain import BATCH
from dayjob.store.steps import Steps, ask, ask_all
from dayjob.text import counted

#: Jobs of one wave at most, because each is looked for.
MAX_WAVE = 500
#: Share of the jobs that ended, above which those that failed again stop the waves.
STOP_ABOVE = 0.2
#: How many entries of one queue or set a look reads at most. Where there are more, a job that was not seen has not ended.
MAX_READ = 20_000
#: Seconds between two looks at a wave: first and last.
_FIRST_WAIT_SECONDS, _LAST_WAIT_SECONDS = 0.25, 4.0


@dataclass(slots=True)
class _Waves:
    """How far it is."""

    total: int
    number: int = 0
    retried: int = 0
    ended: int = 0
    failed: int = 0
    #: Ids of the wave that have not ended, with their job names.
    pending: dict[str, str] = field(default_factory=dict)
    #: Those of them that the last look did not find.
    missing: set[str] = field(default_factory=set)

    @property
    def progress(self) -> BulkProgress:
        words = f"Wave {self.number}: {counted(len(self.pending), 'job')} still to end. {self.failed:,} of {self.ended:,} failed again."
        return BulkProgress(self.retried, self.total, self.total, self.retried, words)


def retry_in_waves(
    session: Session,
    *,
    where: Filter | str | None = None,
    size: int | None = None,
    stop_above: float = STOP_ABOVE,
    progress: Report | None = None,
) -> Steps[Tally]:
    """Retry the dead jobs that match in waves of 1, 2, 4, 8 and so on, or of `size`: each begins when the one before has ended.

    It stops by itself when more than `stop_above` of the jobs that ended failed again; the rest stays dead. When `progress`
    answers False, it stops there. Jobs that die after the beginning are left alone. Raises BadOption.
    """
    if size is not None and not 1 <= size <= MAX_WAVE:
        raise BadOption(f"a wave of {size:,} jobs: give 1 to {MAX_WAVE}")
    wanted = filter_of(where)
    waves = _Waves((yield from count(session, "dead", where=wanted, most=None)).matched)
    subject = "jobs in dead" + ("" if wanted.empty else f" where {wanted}")
    yield from write_audit(session, "retry in waves", subject, f"begun with {counted(waves.total, 'job')}")
    source = _DeadJobs(session, wanted, (yield from ask(inspect.now())))
    stopped = ""
    while not stopped:
        some = yield from source.take(size or min(2**waves.number, MAX_WAVE))
        if not some:
            break
        waves.number += 1
        since = yield from _retry(session, some, waves)
        on = yield from _watch(session, waves, since, progress)
        stopped = "" if on else "Stopped."
        if waves.failed > stop_above * waves.ended:
            stopped = f"Stopped, because more than {stop_above:.0%} failed again."
    message = _message(waves, stopped)
    audited = yield from write_audit(session, "retry in waves", subject, message)
    return Tally(waves.total, waves.total, waves.retried, message, audited)


def _message(waves: _Waves, stopped: str) -> str:
    words = [stopped] if stopped else []
    words.append(f"{counted(waves.retried, 'job')} retried in {counted(waves.number, 'wave')}:")
    parts = [f"{waves.ended - waves.failed:,} completed", f"{waves.failed:,} failed again"]
    if waves.pending:
        parts.append(f"{len(waves.pending):,} not ended yet")
    if waves.retried < waves.total:
        parts.append(f"{waves.total - waves.retried:,} stay dead")
    return " ".join([*words, ", ".join(parts) + "."])


class _DeadJobs:
    """The dead jobs that match, the oldest first. Those that died after the beginning are left out."""

    def __init__(self, session: Session, wanted: Filter, began: float) -> None:
        self._source = session.keys.dead
        # The count before has refused a filter that may not be compared.
        self._matcher = Matcher(session, "dead", wanted)
        # The server's time is cut to a millisecond, and a moment of others may not be.
        self._began = began + 0.001
        self._after: Cursor | None = None
        #: Ids that were taken. Dead keeps whole seconds: one that died again at once looks as if it had died before.
        self._taken: set[str] = set()

    def take(self, most: int) -> Steps[list[StoredEntry]]:
        """The next ones, `most` at most; none when there are no more."""
        found: list[StoredEntry] = []
        while len(found) < most:
            seen = yield from ask(inspect.page(self._source, after=self._after, size=BATCH))
            yield from self._matcher.learn(seen.entries)
            for entry in seen.entries:
                if len(found) == most:
                    break
                self._after = Cursor(entry.at or 0.0, entry.member)
                if entry.job is not None and self._fits(seen, entry):
                    found.append(entry)
                    self._taken.add(entry.job.id)
            if not seen.entries:
                break
        return found

    def _fits(self, seen: Page, entry: StoredEntry) -> bool:
        job_id = entry.job.id if entry.job is not None else ""
        if not job_id or job_id in self._taken or entry.moment > self._began:
            return False
        return self._matcher.fits(entry, seen.now)


def _retry(session: Session, some: list[StoredEntry], waves: _Waves) -> Steps[float]:
    """Retry a wave; the answer is when, by Redis time."""
    now = yield from ask(inspect.now())
    for first in range(0, len(some), BATCH):
        batch = some[first : first + BATCH]
        answers = yield from ask_all([operate.revive(session.keys, one.member, now=now) for one in batch])
        for entry, answer in zip(batch, answers, strict=True):
            if answer.fate == "moved" and entry.job is not None:
                waves.pending[entry.job.id] = entry.job.name
                waves.retried += 1
    return now


def _watch(session: Session, waves: _Waves, since: float, progress: Report | None) -> Steps[bool]:
    """Look until the wave has ended; false when the caller asked to stop."""
    pause = _FIRST_WAIT_SECONDS
    while True:
        failed, seen = yield from _look(session, waves.pending, since)
        absent = waves.pending.keys() - failed - seen
        # One that moved while it was looked for is found by the next look.
        completed = absent & waves.missing
        waves.missing = absent
        waves.failed += len(failed)
        waves.ended += len(failed) + len(completed)
        for job_id in failed | completed:
            del waves.pending[job_id]
        if progress is not None and progress(waves.progress) is False:
            return False
        if not waves.pending:
            return True
        yield from ask(inspect.wait(session.keys, _FIRST_WAIT_SECONDS if absent else pause))
        pause = min(pause * 1.5, _LAST_WAIT_SECONDS)


def _look(session: Session, jobs: dict[str, str], since: float) -> Steps[tuple[set[str], set[str]]]:
    """Which of these jobs failed again, and which have not ended. In the order in which a job moves, so that few slip through."""
    keys = session.keys
    seen: set[str] = set()
    for name in sorted(set(jobs.values())):
        seen |= yield from _waiting(session, name, {job_id for job_id in jobs if jobs[job_id] == name})
    attempts = [one for one in (yield from held(session)) if consume.name_in(one[1]) in jobs.values()]
    for first in range(0, len(attempts), BATCH):
        found = yield from read_held(session, attempts[first : first + BATCH])
        seen |= set(_ids(entry for _, _, entry in found)) & jobs.keys()
    failed: set[str] = set()
    for source, oldest in ((keys.dead, int(since)), (keys.retry, 0)):
        left = jobs.keys() - seen - failed
        if left:
            found_ids, complete = yield from _in_set(source, left, oldest)
            failed |= found_ids
            seen |= set() if complete else left - found_ids
    return failed, seen


def _waiting(session: Session, name: str, wanted: set[str]) -> Steps[set[str]]:
    """Those that wait in a queue, and where it is too long all that may; the newest first, since that is where a retry puts them."""
    found: set[str] = set()
    offset = 0
    while offset < MAX_READ and found != wanted:
        size = inspect.MAX_ENTRIES
        page = yield from inspect.peek_all(session.keys, name, offset=offset, size=size, newest_first=True)
        found |= set(_ids(page.entries)) & wanted
        offset += len(page.entries)
        if not page.entries or offset >= page.total:
            return found
    return wanted if found != wanted else found


def _in_set(source: str, wanted: set[str], oldest: float) -> Steps[tuple[set[str], bool]]:
    """Those that are in a sorted set, not below a score; and whether all of that was read."""
    found: set[str] = set()
    read = 0
    after: Cursor | None = None
    while read < MAX_READ and found != wanted:
        page = yield from ask(inspect.page(source, after=after, size=inspect.MAX_ENTRIES, newest_first=True))
        found |= set(_ids(page.entries)) & wanted
        read += len(page.entries)
        after = page.next
        if after is None or (page.entries[-1].at or 0.0) < oldest:
            return found, True
    return found, found == wanted


def _ids(entries: Iterator[StoredEntry] | tuple[StoredEntry, ...]) -> Iterator[str]:
    return (entry.job.id for entry in entries if entry.job is not None)
