"""Lists of jobs: pages of each state, filtered or not, in the order that Redis keeps or sorted; and broken entries. Reads only."""

from __future__ import annotations

import hashlib
import math
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dayjob.admin import sorting
from dayjob.admin.filters import Filter
from dayjob.admin.jobs import source_of, view
from dayjob.admin.matcher import Matcher
from dayjob.admin.session import Session
from dayjob.admin.views import BrokenPage, Count, JobPage, JobView, State
from dayjob.errors import BadOption, Rejected
from dayjob.handlers.redact import HIDDEN, veiled
from dayjob.store.ops import broken as broken_ops
from dayjob.store.ops import inspect, job_types, maintain, membership
from dayjob.store.ops.broken import BrokenEntry
from dayjob.store.ops.inspect import Cursor, Page, StoredEntry
from dayjob.store.ops.operate import MAX_DEEP
from dayjob.store.steps import Steps, ask, ask_all

#: Among how many entries with the same score the entry of a cursor is searched for.
MAX_SAME = 10_000
#: How many entries a filter searches for one page, and how many a sort compares. More would make the page slow.
MAX_FILTERED = 3000
#: How many queues are read for one page of all waiting jobs.
MAX_QUEUES = 200
#: How many entries a count searches, unless its caller asks for more.
MAX_COUNTED = 100_000

#: Reads one page from a cursor on, of so many jobs at most.
ReadPage = Callable[[str, int], Steps[JobPage]]


def page(
    session: Session,
    state: State,
    *,
    name: str | None = None,
    where: Filter | str | None = None,
    after: str = "",
    size: int = 50,
    newest_first: bool | None = None,
    sort: str = "",
) -> Steps[JobPage]:
    """Jobs in one state, page by page. `name` chooses one queue of waiting jobs. Running jobs are those that pools hold.

    Without a name, waiting jobs are listed queue by queue, in the order of the names. A page searches 3,000 entries at
    most, so with a filter it may be short, even empty, and still have a `next`. 10,000 jobs of each queue are listed,
    from its head or its end. A `sort` other than the order that Redis keeps sorts 3,000 entries at a time:
    `sorted_among` is how many, and `next` leads to the 3,000 after them. Raises BadOption.
    """
    if state not in sorting.JOBS:
        raise BadOption(f"{state!r} is none of {', '.join(sorting.JOBS)}")
    size = max(1, min(size, inspect.MAX_ENTRIES))
    table = sorting.JOBS[state]
    if sort and newest_first is not None:
        raise BadOption("give sort or newest_first, not both")
    column, falling = table.read(sort)
    stored = column == sorting.STORED_ORDER[state] and not (state == "running" and falling)
    if newest_first is None:
        newest_first = falling if stored else table.default.startswith("-")
    matcher = Matcher(session, state, where)
    yield from matcher.open()
    read = _reader(matcher, name, newest_first=newest_first)
    if stored:
        found = yield from read(after, size)
    else:
        found = yield from _sorted_page(table, sort, read, after, size)
    return replace(found, sort=sort or table.default, hidden=matcher.hidden)


def count(
    session: Session,
    state: State,
    *,
    where: Filter | str | None = None,
    name: str | None = None,
    most: int | None = MAX_COUNTED,
    after: str = "",
) -> Steps[Count]:
    """How many jobs match. `most` entries are searched, all of them if it is None; of a queue, the first 10,000.

    If there are more, `next` leads on: pass it as `after`, and add what matched. Raises BadOption.
    """
    matcher = Matcher(session, state, where, counts=True)
    yield from matcher.open()
    if matcher.empty:
        total = (yield from _reader(matcher, name, newest_first=False)("", 1)).total
        return Count(total, total, total)
    budget = sys.maxsize if most is None else most
    matched = searched = 0
    while True:
        rest = budget - searched
        seen = yield from _reader(matcher, name, newest_first=False, most=rest)(after, rest)
        matched, searched, after = matched + len(seen.jobs), searched + seen.searched, seen.next
        if not after or searched >= budget:
            return Count(matched, searched, seen.total, matcher.hidden, after, seen.left + seen.beyond)


def _reader(matcher: Matcher, name: str | None, *, newest_first: bool, most: int | None = None) -> ReadPage:
    """What reads pages of a state in the order that Redis keeps, each among `most` entries. Raises BadOption."""
    most = MAX_FILTERED if most is None else most
    if matcher.state == "waiting":
        queue = name or matcher.wanted.name
        if queue:
            return lambda after, size: _waiting(matcher, queue, after, size, most, newest_first=newest_first)
        return lambda after, size: _waiting_anywhere(matcher, after, size, most, newest_first=newest_first)
    if name is not None:
        raise BadOption("name is for waiting jobs; elsewhere write where='name=...'")
    if matcher.state == "running":
        return lambda after, size: _running(matcher, after, size, most)
    return lambda after, size: _in_set(matcher, after, size, most, newest_first=newest_first)


# Sorted pages: a part of the list that can be read in a moment is read and sorted as a whole.


def _sorted_page(
    table: sorting.SortTable[JobView], sort: str, read: ReadPage, after: str, size: int
) -> Steps[JobPage]:
    """One page of a sorted part. Its cursor has the number of jobs that were shown, and where the part begins."""
    shown, begin = _read_sorted_cursor(after) if after else (0, "")
    seen = yield from read(begin, inspect.MAX_ENTRIES)
    jobs, searched = list(seen.jobs), seen.searched
    while seen.next and searched < MAX_FILTERED:
        seen = yield from read(seen.next, inspect.MAX_ENTRIES)
        jobs += seen.jobs
        searched += seen.searched
    ordered = table.sorted(jobs, sort)
    following = f"sorted~0~{seen.next}" if seen.next else ""
    if shown + size < len(ordered):
        following = f"sorted~{shown + size}~{begin}"
    part = searched if begin or seen.next else 0
    some = tuple(ordered[shown : shown + size])
    return replace(seen, jobs=some, next=following, searched=searched, sorted_among=part)


def _read_sorted_cursor(text: str) -> tuple[int, str]:
    """How many jobs of a sorted part were shown, and where it begins. Raises BadOption."""
    kind, _, rest = text.partition("~")
    shown, tilde, begin = rest.partition("~")
    if kind == "sorted" and tilde and shown.isdecimal() and len(shown) < 7:
        return int(shown), begin
    raise BadOption(
        f"{text[:80]!r} is not a cursor of a sorted list: use the cursor that the page before returned"
    )


# Pages in the order that Redis keeps.


def _in_set(matcher: Matcher, after: str, size: int, budget: int, *, newest_first: bool) -> Steps[JobPage]:
    state = matcher.state
    source = source_of(matcher.session.keys, state)
    cursor = (yield from _read_cursor(source, after, newest_first=newest_first)) if after else None
    found: list[JobView] = []
    searched = 0
    while True:
        most = size if matcher.empty else min(inspect.MAX_ENTRIES, budget - searched)
        seen = yield from ask(inspect.page(source, after=cursor, size=most, newest_first=newest_first))
        yield from matcher.learn(seen.entries)
        for number, entry in enumerate(seen.entries, 1):
            searched += 1
            if matcher.fits(entry, seen.now):
                found.append(_shown(matcher, entry))
            if len(found) >= size:
                last = number == len(seen.entries) and seen.next is None
                stop = None if last else Cursor(entry.at or 0.0, entry.member)
                return _page(seen, state, found, stop, searched, number)
        cursor = seen.next
        if cursor is None or matcher.empty or searched >= budget:
            return _page(seen, state, found, cursor, searched, len(seen.entries))


def _shown(matcher: Matcher, entry: StoredEntry, **more: Any) -> JobView:
    """The view of a job that matches. A count needs none, and it takes longer than the search."""
    return _COUNTED if matcher.counts else view(matcher.redactor, matcher.state, entry, **more)


_COUNTED = JobView("", "", "waiting")


def _page(
    seen: Page, state: State, found: list[JobView], stop: Cursor | None, searched: int, passed: int
) -> JobPage:
    """`passed` entries of what was read last are searched."""
    following = _cursor_text(stop) if stop else ""
    left = max(0, seen.total - seen.offset - passed) if stop else 0
    return JobPage(seen.now, state, seen.total, tuple(found), following, searched, left=left)


def _cursor_text(cursor: Cursor) -> str:
    """A cursor as text that contains nothing of the arguments, because it appears in URLs and logs."""
    head, args, _ = cursor.member.partition(b'"args"')
    if args and b'"id"' in head and len(head) <= inspect.MAX_CURSOR:
        return Cursor(cursor.score, head).text
    return f"{cursor.score!r}~~{_digest(cursor.member)}"


def _digest(member: bytes) -> str:
    return hashlib.sha256(member).hexdigest()[:24]


def _read_cursor(source: str, text: str, *, newest_first: bool) -> Steps[Cursor]:
    """The cursor that `text` stands for. If its entry is gone, it points before all entries with the same score."""
    moment, _, digest = text.partition("~~")
    if not digest:
        return Cursor.of(text)
    score = Cursor.of(f"{moment}~").score
    count = inspect.count_above if newest_first else inspect.count_below
    offset = yield from ask(count(source, score))
    for _ in range(MAX_SAME // inspect.MAX_ENTRIES):
        seen = yield from ask(
            inspect.page(source, offset=offset, size=inspect.MAX_ENTRIES, newest_first=newest_first)
        )
        for entry in seen.entries:
            if entry.at == score and _digest(entry.member) == digest:
                return Cursor(score, entry.member)
        if not seen.entries or seen.entries[-1].at != score:
            break
        offset += len(seen.entries)
    return Cursor(math.nextafter(score, math.inf if newest_first else -math.inf), b"")


def _waiting(
    matcher: Matcher, name: str, after: str, size: int, budget: int, *, newest_first: bool
) -> Steps[JobPage]:
    if after and not after.isdecimal():
        raise BadOption(
            f"{after[:80]!r} is not a cursor of a queue: use the cursor that the page before returned"
        )
    offset = first = int(after or 0)
    found: list[JobView] = []
    keys = matcher.session.keys
    while True:
        if offset >= MAX_DEEP:
            raise BadOption(f"only the first {MAX_DEEP:,} jobs of a queue are shown, from either end")
        most = size if matcher.empty else min(inspect.MAX_ENTRIES, budget - (offset - first))
        most = min(most, MAX_DEEP - offset)
        seen = yield from inspect.peek_all(keys, name, offset=offset, size=most, newest_first=newest_first)
        yield from matcher.learn(seen.entries)
        for entry in seen.entries:
            place = seen.total - 1 - offset if newest_first else offset
            offset += 1
            if matcher.fits(entry, seen.now):
                found.append(_shown(matcher, entry, place=place))
            if len(found) >= size:
                break
        over = not seen.entries or offset >= min(seen.total, MAX_DEEP)
        if over or len(found) >= size or matcher.empty or offset - first >= budget:
            following = "" if over else str(offset)
            beyond = max(0, seen.total - MAX_DEEP)
            left = 0 if over else min(seen.total, MAX_DEEP) - offset
            return JobPage(
                seen.now, "waiting", seen.total, tuple(found), following, offset - first, beyond, left
            )


def _waiting_anywhere(
    matcher: Matcher, after: str, size: int, budget: int, *, newest_first: bool
) -> Steps[JobPage]:
    """One page of the waiting jobs of all queues, by name. Its cursor is the name of a queue and an offset in it."""
    first, passed = _read_place(after) if after else ("", 0)
    overview = yield from inspect.all_queues(matcher.session.keys)
    queues = [queue for queue in overview.queues if queue.size and not queue.wrong]
    sizes = {queue.name: min(queue.size, MAX_DEEP) for queue in queues}
    ahead = [queue.name for queue in queues if queue.name >= first and matcher.wanted.fits_name(queue.name)]
    found: list[JobView] = []
    searched, left, following = 0, 0, ""
    for number, name in enumerate(ahead):
        if number >= MAX_QUEUES or len(found) >= size or searched >= budget:
            following, left = _place_text(name, 0), sum(sizes[one] for one in ahead[number:])
            break
        start = str(passed) if name == first else ""
        seen = yield from _waiting(
            matcher, name, start, size - len(found), budget - searched, newest_first=newest_first
        )
        found += seen.jobs
        searched += seen.searched
        if seen.next:
            following = _place_text(name, int(seen.next))
            left = seen.left + sum(sizes[one] for one in ahead[number + 1 :])
            break
    total = sum(queue.size for queue in queues)
    beyond = sum(max(0, one.size - MAX_DEEP) for one in queues if matcher.wanted.fits_name(one.name))
    return JobPage(overview.now, "waiting", total, tuple(found), following, searched, beyond, left)


def _place_text(name: str, passed: int) -> str:
    return f"{passed}~{urlsafe_b64encode(name.encode()).decode().rstrip('=')}"


def _read_place(text: str) -> tuple[str, int]:
    """The queue and the offset in a cursor over all queues. Raises BadOption."""
    passed, _, name = text.partition("~")
    try:
        if passed.isdecimal() and name:
            return urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode(), int(passed)
    except ValueError:
        pass
    raise BadOption(
        f"{text[:80]!r} is not a cursor of waiting jobs: use the cursor that the page before returned"
    )


def held(session: Session, *, most: int = MAX_DEEP) -> Steps[list[tuple[str, str]]]:
    """The attempts that pools hold, each as pool id and token: the oldest first in each pool."""
    holders = yield from ask_all([membership.pool_ids(session.keys), membership.condemned_ids(session.keys)])
    ids = list(dict.fromkeys(holders[0] + holders[1]))
    tokens = yield from ask_all([membership.held_tokens(session.keys, pool_id) for pool_id in ids])
    found = [
        (pool_id, token)
        for pool_id, some in zip(ids, tokens, strict=True)
        for token in sorted(some, key=lambda one: (len(one.partition(":")[0]), one))
    ]
    return found[:most]


def read_held(
    session: Session, attempts: Sequence[tuple[str, str]]
) -> Steps[list[tuple[str, str, StoredEntry]]]:
    """The jobs of some attempts that are still held: pool id, token and job."""
    by_pool: dict[str, list[str]] = {}
    for pool_id, token in attempts:
        by_pool.setdefault(pool_id, []).append(token)
    looks = [maintain.read_held(session.keys, pool_id, tokens) for pool_id, tokens in by_pool.items()]
    answers = yield from ask_all(looks)
    return [
        (pool_id, token, inspect.kept(payload, None))
        for (pool_id, tokens), payloads in zip(by_pool.items(), answers, strict=True)
        for token, payload in zip(tokens, payloads, strict=True)
        if payload is not None
    ]


def _running(matcher: Matcher, after: str, size: int, budget: int) -> Steps[JobPage]:
    if after and not after.isdecimal():
        raise BadOption(
            f"{after[:80]!r} is not a cursor of running jobs: use the cursor that the page before returned"
        )
    now = yield from ask(inspect.now())
    session = matcher.session
    attempts = yield from held(session)
    offset = first = int(after or 0)
    found: list[JobView] = []
    while offset < len(attempts) and len(found) < size and offset - first < budget:
        batch = attempts[offset : offset + min(size - len(found), maintain.BATCH)]
        offset += len(batch)
        jobs = yield from read_held(session, batch)
        yield from matcher.learn(entry for _, _, entry in jobs)
        for pool_id, token, entry in jobs:
            if matcher.fits(entry, now, pool_id):
                found.append(_shown(matcher, entry, pool_id=pool_id, token=token))
    following = str(offset) if offset < len(attempts) else ""
    left = len(attempts) - offset
    return JobPage(now, "running", len(attempts), tuple(found), following, offset - first, left=left)


def broken(session: Session, *, offset: int = 0, size: int = 50, sort: str = "") -> Steps[BrokenPage]:
    """Entries that could not be read as jobs, oldest first; the first 10,000 can be paged through. Raises BadOption.

    With a `sort` the first 3,000 are compared. Their `payload` is redacted and may
    be shown. Their `entry`, which actions need, is not.
    """
    if not 0 <= offset < MAX_DEEP:
        raise BadOption(f"only the first {MAX_DEEP:,} broken entries are shown")
    if sorting.BROKEN.read(sort) == sorting.BROKEN.read(""):
        found = yield from ask(broken_ops.page(session.keys, offset=offset, size=size))
    else:
        found = yield from _sorted_broken(session, offset, size, sort)
    types = yield from _all_hidden(session)

    def shown(payload: bytes) -> bytes:
        return HIDDEN.encode() if types is None else veiled(payload, types)

    return replace(
        found, entries=tuple(replace(entry, payload=shown(entry.payload)) for entry in found.entries)
    )


def _sorted_broken(session: Session, offset: int, size: int, sort: str) -> Steps[BrokenPage]:
    entries: list[BrokenEntry] = []
    while True:
        seen = yield from ask(broken_ops.page(session.keys, offset=len(entries), size=inspect.MAX_ENTRIES))
        entries += seen.entries
        if not seen.entries or len(entries) >= min(seen.total, MAX_FILTERED):
            ordered = sorting.BROKEN.sorted(entries, sort)[offset : offset + size]
            compared = len(entries) if len(entries) < seen.total else 0
            return BrokenPage(seen.total, tuple(ordered), compared)


def _all_hidden(session: Session) -> Steps[frozenset[str] | None]:
    """All arguments that any job type hides, since the type of broken bytes is not known. None if job types cannot be read."""
    try:
        known = yield from job_types.every(session.keys)
    except Rejected:
        return None
    return session.hide.union(*(one.described.redact for one in known))
