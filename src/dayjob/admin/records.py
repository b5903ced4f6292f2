"""What the history answers: attempts that ended, their counts over time, and what each source used. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from dayjob.store.ops.history import ENDINGS, FAILED, Ending, StoredRecord

__all__ = [
    "ENDINGS",
    "AttemptRecord",
    "Ending",
    "HistoryCounts",
    "HistoryPage",
    "LoggedLines",
    "SourceView",
    "SourcesView",
    "attempt_record",
]


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt that ended."""

    id: str
    name: str
    #: How it ended: completed, retried, dead, dropped, crashed, snoozed, discarded, cancelled, given_back, unreadable.
    outcome: str
    #: Redis time in seconds; None here and below: not known.
    ended_at: float
    started_at: float | None
    #: When the job was enqueued for the first time.
    enqueued_at: float | None
    #: Seconds that the job waited for this attempt, and that the attempt ran.
    waited: float | None
    ran: float | None
    #: 1 for the first attempt of the job.
    attempt: int
    pool_id: str
    tag: str
    source: str | int | None
    #: The class name of its exception; "" if there was none.
    error: str
    #: How many attempts this record stands for: more than 1 if its pool recorded only a sample.
    stands_for: float
    #: The job inside which it was enqueued, `<name>/<id>`; "" if there is none.
    parent: str = ""
    #: The schedule that enqueued it; "" if none did.
    schedule: str = ""

    @property
    def failed(self) -> bool:
        """Whether it counts as a failure: retried, dead, dropped or crashed."""
        return self.outcome in FAILED

    @property
    def reason(self) -> str:
        """Why it failed, in a word or two: its error, or the death of its pool, of which the timeline has the cause."""
        return self.error or ("its pool died" if self.outcome == "crashed" else "")


def attempt_record(name: str, stored: StoredRecord) -> AttemptRecord:
    """A record as consoles show it."""
    ended = stored.ended / 1000
    ran = stored.ran / 1e6 if stored.ran >= 0 else None
    return AttemptRecord(
        stored.id, name, stored.ending, ended, None if ran is None else ended - ran,
        ended - stored.age / 1000 if stored.age >= 0 else None,
        stored.waited / 1e6 if stored.waited >= 0 else None, ran, stored.attempt, stored.pool, stored.tag, stored.source,
        stored.error, stored.weight, stored.parent, stored.schedule,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoggedLines:
    """The last lines that one attempt logged."""

    attempt: int
    text: str


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Some records of the history, the newest first or sorted otherwise."""

    now: float
    records: tuple[AttemptRecord, ...]
    #: How many records were searched for this page; a filter may pass over many.
    searched: int
    #: What to pass as `after` for the next page; "" when this is the last.
    next: str = ""
    #: Whether older records were not searched: then a sort has only the newest ones.
    partial: bool = False

    @property
    def sample_rate(self) -> float:
        """The share of the attempts that was recorded, among those of this page: 1 if every attempt was."""
        total = sum(one.stands_for for one in self.records)
        return len(self.records) / total if total else 1.0


@dataclass(frozen=True, slots=True)
class HistoryCounts:
    """How many attempts ended in each step of a span."""

    now: float
    #: The beginning of each step, and its length, in seconds.
    starts: tuple[float, ...]
    step: float
    #: Attempts in each step: all, and those that failed. Estimated where pools recorded a sample.
    ended: tuple[int, ...]
    failed: tuple[int, ...]
    searched: int
    #: Whether records were left out, because there are more than one request searches.
    partial: bool


@dataclass(frozen=True, slots=True)
class SourceView:
    """What one source used."""

    source: str
    #: Attempts that ended, and those of them that failed. Estimated where pools recorded a sample.
    attempts: int
    failed: int
    #: Seconds that its attempts ran, together.
    worked: float
    #: The average seconds that they waited; None if that is not known.
    waited: float | None
    #: When the last one ended; None if none did.
    last_at: float | None
    #: Attempts that run now, as far as pools show them.
    running: int = 0
    #: The job names of its attempts, the most frequent first; ten at most.
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourcesView:
    """The sources that the history knows, those that used most time first."""

    now: float
    sources: tuple[SourceView, ...]
    #: Since when, and how many records were searched.
    since: float
    searched: int
    #: Whether records were left out, because there are more than one request searches.
    partial: bool
