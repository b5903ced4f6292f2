"""The history as operators see it: pages of ended attempts, and their counts over time. Reads only."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dayjob.admin import sorting
from dayjob.admin.records import (
    AttemptRecord,
    HistoryCounts,
    HistoryPage,
    attempt_record,
)
from dayjob.admin.session import Session
from dayjob.errors import BadOption
from dayjob.names import suggest
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import history as store
from dayjob.store.ops import inspect, job_types, maintain
from dayjob.store.ops.history import ENDINGS, FAILED, KeptRecord, Place
from dayjob.store.steps import Steps, ask, ask_all
from dayjob.text import source_text

#: The most records of a page; how many are searched for one page; for counts, sources and other orders.
MAX_RECORDS = 500
MAX_SEARCHED = 5000
MAX_COUNTED = 5000
#: How many records are searched for the attempts of one job: of a known name, and of all names together.
MAX_OF_NAME, MAX_OF_ALL = 50_000, 20_000
#: How many of the streams that were searched least far back are read next.
STREAMS_AT_ONCE = 50
#: Requests in one round trip. The server answers them one after the other, about a millisecond each, before other clients.
SCANS_AT_ONCE = 4
#: Records are written up to this many milliseconds after their attempts ended; later only after an outage.
DELAY_MS = 60_000
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Query:
    """Which attempts are meant. None is not checked."""

    name: str | None = None
    since: float | None = None
    until: float | None = None
    #: One of ENDINGS, or "failed" for each of FAILED.
    outcome: str | None = None
    source: str | None = None
    pool: str | None = None
    id: str | None = None
    #: The id of the job inside which they were enqueued.
    parent: str | None = None
    #: The schedule that enqueued them.
    schedule: str | None = None

    def __post_init__(self) -> None:
        if self.outcome is not None and self.outcome not in (*ENDINGS, "failed"):
            known = ("failed", *ENDINGS)
            raise BadOption(
                f"no outcome {self.outcome[:80]!r}{suggest(self.outcome, known)} (outcomes: {', '.join(known)})"
            )

    @property
    def since_ms(self) -> int:
        """No record of interest was written before this moment."""
        return max(0, int((self.since or 0) * 1000))

    @property
    def texts(self) -> list[bytes]:
        """Texts that each record of interest has."""
        words = [self.pool, self.id, self.outcome if self.outcome in ENDINGS else None]
        texts = [codec.quoted(word) for word in words if word is not None]
        if self.source is not None:
            # A source may be a number.
            texts.append(codec.quoted(self.source)[1:-1])
        if self.parent is not None:
            texts.append(b"/%b" % codec.quoted(self.parent)[1:])
        if self.schedule is not None:
            texts.append(codec.quoted(self.schedule[: codec.MAX_ORIGIN]))
        return texts

    def streams(self, keys: Keys, names: Iterable[str]) -> list[_Stream]:
        """The streams to read."""
        kinds = (True, False)
        if self.outcome is not None:
            kinds = (True,) if self.outcome == "completed" else (False,)  # type: ignore[assignment]
        return [
            _Stream(name, store.stream(keys, name, completed=completed))
            for name in names
            for completed in kinds
        ]

    def fits(self, record: store.StoredRecord) -> bool:
        """Whether a record that the server found matches this query."""
        if self.outcome == "failed" and record.ending not in FAILED:
            return False
        return (
            (self.outcome in (None, "failed") or record.ending == self.outcome)
            and (self.source is None or source_text(record.source) == self.source)
            and (self.pool is None or record.pool == self.pool)
            and (self.id is None or record.id == self.id[: store.MAX_ID])
            and (self.parent is None or record.parent.partition("/")[2] == self.parent)
            and (self.schedule is None or record.schedule == self.schedule[: codec.MAX_ORIGIN])
            and (self.since is None or record.ended >= self.since * 1000)
            and (self.until is None or record.ended < self.until * 1000)
        )


#: A place over all streams: the later is the newer.
Position = tuple[Place, str]


@dataclass(slots=True)
class _Stream:
    """A stream while it is read: what was found and not yet taken, newest first, and from where to read on."""

    name: str
    key: str
    before: tuple[Place, bool] | None = None
    found: list[KeptRecord] = field(default_factory=list)
    ended: bool = False
    #: How many records the next read searches.
    most: int = 20

    def begin(self, after: Position | None, until: float | None) -> None:
        """Read what is older than a position, and was written before a moment."""
        if until is not None:
            self.before = (int(until * 1000) + DELAY_MS, 0), False
        if after is not None:
            place, key = after
            self.before = place, self.key < key

    @property
    def reached(self) -> int:
        """What was written after this Redis millisecond was searched."""
        return self.before[0][0] if self.before is not None else 1 << 62

    @property
    def top(self) -> Position:
        """Nothing that was not taken is newer than this."""
        if self.found:
            return self.found[0].place, self.key
        return (self.before[0], self.key) if self.before is not None else ((1 << 62, 0), self.key)


def _names(session: Session, name: str | None) -> Steps[list[str]]:
    if name is not None:
        return [name]
    known = yield from ask_all([job_types.names(session.keys), maintain.known_jobs(session.keys)])
    return sorted({*known[0], *known[1]})


def _read_on(streams: Sequence[_Stream], query: Query, ran: float = 0.0) -> Steps[int]:
    """Read the next part of some streams. Returns how many records were searched."""
    texts, since = query.texts, query.since_ms
    ops = [
        store.scan(batch, since=since, texts=texts, ran=ran)
        for batch in store.batches(store.Scan(one.key, one.before, one.most) for one in streams)
    ]
    answers: list[store.Scanned] = []
    for first in range(0, len(ops), SCANS_AT_ONCE):
        for found in (yield from ask_all(ops[first : first + SCANS_AT_ONCE])):
            answers += found
    for stream, answer in zip(streams, answers, strict=True):
        stream.found += [one for one in answer.found if query.fits(one.record)]
        stream.ended = answer.last is None
        if answer.last is not None:
            stream.before = answer.last, False
        stream.most = min(stream.most * 3, store.MAX_SCANNED)
    return sum(answer.searched for answer in answers)


def _begin_newest(streams: Sequence[_Stream], query: Query) -> None:
    """Prepare to read the newest records of all these streams together."""
    for stream in streams:
        stream.begin(None, query.until)
        stream.most = max(4, min(store.MAX_SCANNED, MAX_COUNTED // (5 * len(streams))))


def _read_next(streams: Sequence[_Stream]) -> list[_Stream]:
    """The streams to read next: those that were searched least far back. Busy names have more records of the same time."""
    open_ = [stream for stream in streams if not stream.ended]
    return sorted(open_, key=lambda stream: stream.reached, reverse=True)[:STREAMS_AT_ONCE]


# Pages.


def history(
    session: Session,
    name: str | None = None,
    *,
    since: float | None = None,
    until: float | None = None,
    outcome: str | None = None,
    source: str | None = None,
    pool: str | None = None,
    schedule: str | None = None,
    sort: str = "",
    limit: int = 50,
    after: str = "",
) -> Steps[HistoryPage]:
    """Attempts that ended, the newest first, page by page; or sorted by another column: `-ran`. Times are Redis time in seconds.

    `outcome` is how they ended, or "failed" for all that failed. With a filter a page may be short, even empty, and have
    a next: 5,000 records are searched for one. With another sort, the page has the first `limit` of the newest 5,000.
    Raises BadOption.
    """
    column = sorting.HISTORY.read(sort)
    query = Query(name, since, until, outcome, source, pool, schedule=schedule)
    limit = max(1, min(limit, MAX_RECORDS))
    now = yield from ask(inspect.now())
    names = yield from _names(session, name)
    streams = query.streams(session.keys, names)
    if column == ("ran", True):
        return (yield from _slowest(streams, query, limit, now))
    if column != sorting.HISTORY.read(""):
        newest = yield from read_newest(session, query)
        rows = sorting.HISTORY.sorted((attempt_record(*one) for one in newest.whole()), sort)
        return HistoryPage(now, tuple(rows[:limit]), newest.searched, partial=newest.since > 0)
    position = _read_cursor(after) if after else None
    for stream in streams:
        stream.begin(position, until)
        # Of many names each has few of the newest attempts.
        stream.most = max(2, min(100, 2 * limit // len(streams)))
    return (yield from _newest(streams, query, limit, now))


def _newest(streams: list[_Stream], query: Query, limit: int, now: float) -> Steps[HistoryPage]:
    """Merge the streams. One is read on only while it may have something newer than what the others have."""
    found: list[AttemptRecord] = []
    searched = 0
    last: Position | None = None
    while len(found) < limit:
        full = max((stream for stream in streams if stream.found), key=lambda one: one.top, default=None)
        short = [
            stream
            for stream in streams
            if not stream.ended and not stream.found and (full is None or stream.top > full.top)
        ]
        if short and searched >= MAX_SEARCHED:
            # Everything newer than this was searched, and is among `found`.
            place, key = max(stream.top for stream in streams if stream.found or not stream.ended)
            return HistoryPage(now, _by_end(found), searched, _cursor_text((place, key + "\0")))
        if short:
            searched += yield from _read_on(short, query)
        elif full is None:
            return HistoryPage(now, _by_end(found), searched)
        else:
            last = full.top
            found.append(attempt_record(full.name, full.found.pop(0).record))
    more = last is not None and any(stream.found or not stream.ended for stream in streams)
    return HistoryPage(now, _by_end(found), searched, _cursor_text(last) if more and last else "")


def _by_end(records: Iterable[AttemptRecord]) -> tuple[AttemptRecord, ...]:
    """A page, newest first. Redis has records in the order in which they were written, up to a second after the attempts ended."""
    return tuple(sorted(records, key=lambda one: one.ended_at, reverse=True))


def _slowest(streams: list[_Stream], query: Query, limit: int, now: float) -> Steps[HistoryPage]:
    found: list[AttemptRecord] = []
    searched, least = 0, 0.000001
    _begin_newest(streams, query)
    while (some := _read_next(streams)) and searched < MAX_COUNTED:
        searched += yield from _read_on(some, query, least)
        for stream in some:
            found += [attempt_record(stream.name, one.record) for one in stream.found]
            stream.found.clear()
        found.sort(key=lambda one: -(one.ran or 0.0))
        del found[limit:]
        if len(found) == limit:
            # Shorter ones need not be sent.
            least = found[-1].ran or least
    return HistoryPage(now, tuple(found), searched, partial=bool(some))


def _cursor_text(position: Position) -> str:
    (milliseconds, number), key = position
    return f"{milliseconds}-{number}~{urlsafe_b64encode(key.encode()).decode().rstrip('=')}"


def _read_cursor(text: str) -> Position:
    match = re.fullmatch(r"(\d{1,15})-(\d{1,19})~([\w-]{1,2000})", text)
    try:
        if match is not None:
            key = urlsafe_b64decode(match[3] + "=" * (-len(match[3]) % 4)).decode()
            return (int(match[1]), int(match[2])), key
    except ValueError:
        pass
    raise BadOption(
        f"{text[:80]!r} is not a cursor of the history: use the cursor that the page before returned"
    )


def attempts_of(session: Session, job_id: str, name: str | None = None) -> Steps[tuple[AttemptRecord, ...]]:
    """The recorded attempts of one job, oldest first.

    Of a known name all its records are searched, else the newest 20,000 of all names.
    """
    query = Query(name, id=job_id)
    names = yield from _names(session, name)
    streams = query.streams(session.keys, names)
    most = MAX_OF_ALL if name is None else MAX_OF_NAME
    for stream in streams:
        stream.most = max(50, min(store.MAX_SCANNED, most // max(1, len(streams))))
    searched = 0
    found: list[AttemptRecord] = []
    while (open_ := [stream for stream in streams if not stream.ended]) and searched < most:
        searched += yield from _read_on(open_, query)
        for stream in open_:
            found += [attempt_record(stream.name, one.record) for one in stream.found]
            stream.found.clear()
        if name is None and found:
            # The other attempts have the same name.
            return (yield from attempts_of(session, job_id, found[0].name))
    return tuple(_in_order(found))


def _in_order(records: Iterable[AttemptRecord]) -> list[AttemptRecord]:
    """The records, oldest first. Two attempts of one job may end within the same millisecond of Redis."""
    return sorted(records, key=lambda one: (one.ended_at, one.attempt))


def children(session: Session, job_id: str) -> Steps[tuple[AttemptRecord, ...]]:
    """The last recorded attempt of each job that this job enqueued, newest first, among the newest 5,000 records."""
    newest = yield from read_newest(session, Query(parent=job_id[: store.MAX_ID]))
    latest = {
        one.id: one for one in _in_order(attempt_record(name, one.record) for name, one in newest.found)
    }
    return tuple(sorted(latest.values(), key=lambda one: -one.ended_at)[:MAX_RECORDS])


def failed_attempts(session: Session, name: str, ids: Collection[str]) -> Steps[list[AttemptRecord]]:
    """The failed attempts of these jobs of one name, among its newest 5,000 that did not complete."""
    newest = yield from read_newest(session, Query(name, outcome="failed"))
    return [attempt_record(name, one.record) for _, one in newest.found if one.record.id in ids]


# Counts.


class Newest(NamedTuple):
    """The newest records that match."""

    found: list[tuple[str, KeptRecord]]
    searched: int
    #: Every record that was written after this Redis millisecond was searched; 0 if all were.
    since: int

    def whole(self) -> Iterator[tuple[str, store.StoredRecord]]:
        """Those after `since`: no match of that time is missing among them."""
        return ((name, one.record) for name, one in self.found if one.place[0] >= self.since)


def read_newest(session: Session, query: Query) -> Steps[Newest]:
    """The newest matching records of all names together, among about 5,000."""
    names = yield from _names(session, query.name)
    streams = query.streams(session.keys, names)
    _begin_newest(streams, query)
    searched = 0
    while (some := _read_next(streams)) and searched < MAX_COUNTED:
        searched += yield from _read_on(some, query)
    found = [(stream.name, one) for stream in streams for one in stream.found]
    return Newest(found, searched, max((stream.reached for stream in some), default=0))


def history_counts(
    session: Session,
    name: str | None = None,
    *,
    since: float | None = None,
    until: float | None = None,
    outcome: str | None = None,
    source: str | None = None,
    pool: str | None = None,
    schedule: str | None = None,
    steps: int = 60,
) -> Steps[HistoryCounts]:
    """How many attempts ended in each of `steps` equal parts of a span, by default of the last day. Raises BadOption.

    The newest 5,000 records are counted: if there are more, the span begins later and is `partial`. `admin.metrics` has
    exact counts of all attempts by job name.
    """
    now = yield from ask(inspect.now())
    end = now if until is None else until
    start = end - DAY_SECONDS if since is None else since
    if end <= start:
        raise BadOption("since must be before until")
    query = Query(name, start, end, outcome, source, pool, schedule=schedule)
    newest = yield from read_newest(session, query)
    return counted(newest, start, end, steps, now)


def counted(newest: Newest, start: float, end: float, steps: int, now: float) -> HistoryCounts:
    """Records in each of `steps` equal parts of a span, which begins later if not all of its records were searched."""
    start = min(max(start, newest.since / 1000), end - 1)
    steps = max(1, min(steps, 500))
    step = (end - start) / steps
    ended, failed = [0.0] * steps, [0.0] * steps
    for _, record in newest.whole():
        # An attempt may have ended a moment before it was recorded.
        place = max(0, min(steps - 1, int((record.ended / 1000 - start) / step)))
        ended[place] += record.weight
        if record.ending in FAILED:
            failed[place] += record.weight
    starts = tuple(start + number * step for number in range(steps))
    return HistoryCounts(
        now,
        starts,
        step,
        tuple(map(round, ended)),
        tuple(map(round, failed)),
        newest.searched,
        newest.since > 0,
    )
