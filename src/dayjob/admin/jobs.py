"""Jobs as operators see them: pages of each state, filtered or not, and one job with its story. Reads only."""

from __future__ import annotations

import hashlib
import math
import shlex
from typing import Any

from dayjob import wording
from dayjob.admin.desk import Desk
from dayjob.admin.filters import Filter, age_of, filter_of
from dayjob.admin.metrics import recent_rate
from dayjob.admin.views import BrokenPage, Event, JobDetail, JobPage, JobView, Seen, State
from dayjob.errors import BadOption
from dayjob.redact import HIDDEN, shown
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops import find, inspect, maintain
from dayjob.store.ops.inspect import Cursor, Kept, Page
from dayjob.store.ops.operate import MOST_DEEP
from dayjob.store.steps import Steps, ask

#: How many entries one call with a filter looks at before it answers with what it has.
MOST_LOOKED = 10_000
#: States whose jobs are in a sorted set.
IN_SETS = ("scheduled", "retry", "dead", "done")


def source_of(keys: Keys, state: State) -> str:
    """The sorted set of a state. Raises BadOption for the states that have none."""
    sets = {"scheduled": keys.scheduled, "retry": keys.retry, "dead": keys.dead, "done": keys.done}
    if state not in sets:
        raise BadOption(f"{state!r} is none of {', '.join(sets)}")
    return sets[state]


def view(desk: Desk, state: State, entry: Kept, *, place: int | None = None) -> JobView:
    """An entry of a queue or side set as it may be shown."""
    return of_wire(desk, state, entry.member, entry.job, at=entry.at, place=place, problem=entry.problem)


def of_wire(desk: Desk, state: State, payload: bytes, wire: codec.Wire | None, **more: Any) -> JobView:
    """A job as it may be shown; `more` is what its place says of it."""
    if wire is None:
        return JobView("", "", state, payload=payload, **more)
    return JobView(
        wire.id, wire.name, state,
        args=_shown(desk, wire.args), source=wire.source, enqueued_at=_enqueued_at(state, wire),
        attempt=1 + wire.fails + wire.deaths + wire.snoozes, fails=wire.fails, deaths=wire.deaths, snoozes=wire.snoozes,
        error=wire.err, trace=wire.trace, failed_at=float(wire.failed_at) or None,
        expires_at=wire.expires / 1000 if wire.expires else None, unique_key=wire.unique_key, payload=payload, **more,
    )  # fmt: skip


def _enqueued_at(state: State, wire: codec.Wire) -> float | None:
    # What ended an attempt has stamped `at` anew; `t` is still when the job was enqueued or became due.
    if wire.at and state not in ("retry", "dead", "done"):
        return wire.at / 1000
    return float(wire.t) or None


def _shown(desk: Desk, raw: Any) -> Any:
    try:
        return shown(codec.json_value(raw), desk.hide)
    except codec.UNREADABLE:
        return None


# Pages.


def page(
    desk: Desk,
    state: State,
    *,
    name: str | None = None,
    where: Filter | str | None = None,
    after: str = "",
    size: int = 50,
    newest_first: bool | None = None,
) -> Steps[JobPage]:
    """Jobs in one state, page by page; `name` is needed for those that wait in a queue.

    With a filter a page may be short, even empty, and have a next: 10,000 entries are looked at for one. Those of a
    queue are paged for the first 10,000 from either end. Raises BadOption.
    """
    wanted = filter_of(where)
    size = max(1, min(size, inspect.MOST_ENTRIES))
    if state == "waiting":
        queue = name or wanted.name
        if not queue:
            raise BadOption("which queue? Give its name: each job name is a queue of its own")
        return (yield from _waiting(desk, queue, wanted, after, size, newest_first=bool(newest_first)))
    if name is not None:
        raise BadOption("name is for waiting jobs; elsewhere write where='name=...'")
    if newest_first is None:
        newest_first = state in ("dead", "done")
    return (yield from _in_set(desk, state, wanted, after, size, newest_first=newest_first))


def _in_set(
    desk: Desk, state: State, wanted: Filter, after: str, size: int, *, newest_first: bool
) -> Steps[JobPage]:
    source = source_of(desk.keys, state)
    cursor = (yield from _read_cursor(source, after, newest_first=newest_first)) if after else None
    found: list[JobView] = []
    looked = 0
    while True:
        most = size if wanted.empty else inspect.MOST_ENTRIES
        seen = yield from ask(inspect.page(source, after=cursor, size=most, newest_first=newest_first))
        for number, entry in enumerate(seen.entries, 1):
            looked += 1
            if wanted.matches(entry.job, age_of(state, entry.job, entry.at, seen.now)):
                found.append(view(desk, state, entry))
            if len(found) >= size:
                last = number == len(seen.entries) and seen.next is None
                stop = None if last else Cursor(entry.at or 0.0, entry.member)
                return _page(seen, state, found, stop, looked)
        cursor = seen.next
        if cursor is None or wanted.empty or looked >= MOST_LOOKED:
            return _page(seen, state, found, cursor, looked)


def _page(seen: Page, state: State, found: list[JobView], stop: Cursor | None, looked: int) -> JobPage:
    return JobPage(seen.now, state, seen.total, tuple(found), _cursor_text(stop) if stop else "", looked)


def _cursor_text(cursor: Cursor) -> str:
    """A cursor for people, logs and URLs: nothing of the arguments is in it."""
    head, args, _ = cursor.member.partition(b'"args"')
    if args and b'"id"' in head and len(head) <= inspect.MOST_CURSOR:
        return Cursor(cursor.score, head).text
    return f"{cursor.score!r}~~{_digest(cursor.member)}"


def _digest(member: bytes) -> str:
    return hashlib.sha256(member).hexdigest()[:24]


def _read_cursor(source: str, text: str, *, newest_first: bool) -> Steps[Cursor]:
    """The cursor that `text` was made from. Where its member is gone, that is before all others of its moment."""
    moment, _, digest = text.partition("~~")
    if not digest:
        return Cursor.of(text)
    score = Cursor.of(f"{moment}~").score
    side = (f"({score!r}", "+inf") if newest_first else ("-inf", f"({score!r}")
    offset = yield from ask(Op("ZCOUNT", (source,), side, int))
    for _ in range(MOST_LOOKED // inspect.MOST_ENTRIES):
        seen = yield from ask(
            inspect.page(source, offset=offset, size=inspect.MOST_ENTRIES, newest_first=newest_first)
        )
        for entry in seen.entries:
            if entry.at == score and _digest(entry.member) == digest:
                return Cursor(score, entry.member)
        if not seen.entries or seen.entries[-1].at != score:
            break
        offset += len(seen.entries)
    return Cursor(math.nextafter(score, math.inf if newest_first else -math.inf), b"")


def _waiting(
    desk: Desk, name: str, wanted: Filter, after: str, size: int, *, newest_first: bool
) -> Steps[JobPage]:
    if after and not after.isdecimal():
        raise BadOption(f"{after[:80]!r} is no cursor of a queue: take it from a page that you were given")
    offset = first = int(after or 0)
    found: list[JobView] = []
    while True:
        if offset >= MOST_DEEP:
            raise BadOption(f"only the first {MOST_DEEP:,} jobs of a queue are shown, from either end")
        most = min(size if wanted.empty else inspect.MOST_ENTRIES, MOST_DEEP - offset)
        seen = yield from ask(
            inspect.peek(desk.keys, name, offset=offset, size=most, newest_first=newest_first)
        )
        for entry in seen.entries:
            place = seen.total - 1 - offset if newest_first else offset
            offset += 1
            if wanted.matches(entry.job, age_of("waiting", entry.job, None, seen.now)):
                found.append(view(desk, "waiting", entry, place=place))
            if len(found) >= size:
                break
        over = not seen.entries or offset >= min(seen.total, MOST_DEEP)
        if over or len(found) >= size or wanted.empty:
            following = "" if over else str(offset)
            return JobPage(seen.now, "waiting", seen.total, tuple(found), following, offset - first)


def broken(desk: Desk, *, offset: int = 0, size: int = 50) -> Steps[BrokenPage]:
    """Entries that could not be read as jobs, oldest first; the first 10,000 can be paged through."""
    if not 0 <= offset < MOST_DEEP:
        raise BadOption(f"only the first {MOST_DEEP:,} broken entries are shown")
    return (yield from ask(inspect.broken(desk.keys, offset=offset, size=size)))


# One job.


def locate(desk: Desk, job: JobView | Seen | str) -> Steps[JobView | None]:
    """The job that is meant, wherever it is now; a view is taken as it is."""
    if isinstance(job, JobView):
        return job
    seen = Seen(job) if isinstance(job, str) else job
    if seen.state in IN_SETS and seen.at is not None:
        found = yield from _by_moment(desk, seen, seen.state)
        if found is not None:
            return found
    whereabouts = yield from find.find_job(desk.keys, seen.id, seen.name)
    return None if whereabouts is None else _found(desk, seen.id, whereabouts)


def _by_moment(desk: Desk, seen: Seen, state: Any) -> Steps[JobView | None]:
    """A job in a set of any size, by its moment there."""
    source = source_of(desk.keys, state)
    rank = yield from ask(Op("ZCOUNT", (source,), ("-inf", f"({seen.at!r}"), int))
    sought = yield from ask(find.seek(source, find._texts(seen.id), offset=rank))
    match = find._match(sought, seen.id)
    if match is None or float(match[2]) != seen.at:
        return None
    return of_wire(desk, state, match[1], match[3], at=seen.at)


def _found(desk: Desk, job_id: str, found: find.Found) -> JobView:
    result = None
    if found.result is not None:
        try:
            answer = codec.json_value(found.result)
            result = shown(answer.get("result", answer.get("error")), desk.hide)
        except (AttributeError, *codec.UNREADABLE):
            result = None
    if found.job is None:
        return JobView(job_id, found.name, found.state, result=result)
    place = found.place if found.state == "waiting" else None
    return of_wire(
        desk, found.state, found.payload, found.job,
        at=found.at, place=place, pool_id=found.pool_id, token=found.token, result=result,
    )  # fmt: skip


def detail(desk: Desk, job_id: str, *, name: str | None = None) -> Steps[JobDetail | None]:
    """One job by its id, in any state, with its timeline and why it is not running; None when it is not found."""
    told = yield from find.explain(desk.keys, job_id, name)
    if told.found is None:
        return None
    job = _found(desk, job_id, told.found)
    sentence = yield from _completed(desk, told.sentence, told.found)
    now = yield from ask(inspect.now())
    return JobDetail(job, sentence, timeline(job, now), *copies(job))


def explain(desk: Desk, job_id: str, *, name: str | None = None) -> Steps[str]:
    """Why a job is not running, in one sentence."""
    told = yield from find.explain(desk.keys, job_id, name)
    return told.sentence if told.found is None else (yield from _completed(desk, told.sentence, told.found))


def _completed(desk: Desk, sentence: str, found: find.Found) -> Steps[str]:
    """What only the admin layer knows: who paused the queue, who holds the limit, how long it may take."""
    if found.state != "waiting":
        return sentence
    if "its queue is paused" in sentence:
        who, since = yield from paused_by(desk.keys, found.name)
        if who:
            now = yield from ask(inspect.now())
            ago = f" since {wording.span(now - since)}" if since else ""
            return sentence.replace("its queue is paused", f"its queue is paused by {who}{ago}")
    elif "its limit is reached" in sentence:
        holders = yield from ask(maintain.held_members(desk.keys, found.name, most=5))
        return f"{sentence[:-1]}, held by {', '.join(sorted(holders))}."
    elif found.place:
        rate = yield from recent_rate(desk, found.name)
        if rate:
            return f"{sentence[:-1]}; at the pace of the last minutes its turn comes in about {wording.span(found.place / rate * 60)}."
    return sentence


def paused_by(keys: Keys, name: str) -> Steps[tuple[str, float | None]]:
    """Who paused a queue and when; "" and None where that was not written."""
    raw: bytes | None = yield from ask(Op("GET", (keys.paused(name),), (), lambda reply: reply))
    moment, _, who = (raw or b"").decode("utf-8", "replace").partition(" ")
    return (who, float(moment)) if who and moment.isdecimal() else ("", None)


def timeline(job: JobView, now: float) -> tuple[Event, ...]:
    """What is known of the life of a job, in its order."""
    events: list[Event] = []
    if job.enqueued_at is not None and job.enqueued_at <= now + 1:
        events.append(Event(job.enqueued_at, "enqueued, or due again" if job.attempt > 1 else "enqueued"))
    if job.failed_at is not None:
        line = job.error.strip().partition("\n")[0][:200]
        events.append(Event(job.failed_at, f"attempt {max(1, job.attempt - 1)} failed: {line}"))
    if job.at is not None:
        words = {"scheduled": "due", "retry": "next attempt", "dead": "died", "done": "dropped from done"}
        events.append(Event(job.at, words.get(job.state, job.state)))
    if job.expires_at is not None:
        events.append(Event(job.expires_at, "expires"))
    return tuple(sorted(events, key=lambda event: event.at))


def copies(job: JobView) -> tuple[str, str]:
    """What enqueues a job like this one: in Python, and as a command."""
    args = job.args if isinstance(job.args, dict) else {}
    pairs = ", ".join(f"{key!r}: {value!r}" for key, value in args.items())
    python = f"enqueuer.enqueue({job.name!r}, **{{{pairs}}})"
    text = codec._write(args).decode()
    command = f"dayjob enqueue {shlex.quote(job.name)}" + (f" --json {shlex.quote(text)}" if args else "")
    if HIDDEN in text:
        python, command = f"{python}  # fill in what is {HIDDEN}", f"{command}  # fill in what is {HIDDEN}"
    return python, command
