"""Jobs as operators see them: pages of each state, filtered or not, and one job with its timeline. Reads only."""

from __future__ import annotations

import hashlib
import math
import shlex
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from dayjob import text
from dayjob.admin.filters import Filter, age_of, filter_of
from dayjob.admin.history import attempts_of
from dayjob.admin.metrics import recent_rate
from dayjob.admin.records import LoggedLines
from dayjob.admin.redactor import Redactor
from dayjob.admin.session import Session
from dayjob.admin.views import (
    AttemptRecord,
    BrokenPage,
    Event,
    EventKind,
    JobDetail,
    JobPage,
    JobView,
    PastAttempt,
    Seen,
    State,
)
from dayjob.errors import BadOption, Rejected
from dayjob.explain.reasons import JobFinished, JobNotFound, JobWaiting, Reason, reason
from dayjob.explain.words import sentence
from dayjob.handlers.redact import HIDDEN, veiled
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import consume, find, history, inspect, job_types, maintain
from dayjob.store.ops.inspect import Cursor, Page, StoredEntry
from dayjob.store.ops.operate import MAX_DEEP
from dayjob.store.steps import Steps, ask, ask_all

#: How many jobs are searched for an id: of each queue, of each queue in a quick search, and of all queues in a quick search.
SEARCH_DEPTHS = (find.MAX_SEARCHED, find.QUICK, find.QUICK_IN_ALL)
#: Among how many entries with the same score the entry of a cursor is searched for.
MAX_SAME = 10_000
#: How many entries a filter searches for one page. More would make the page slow.
MAX_FILTERED = 3000
#: How many queues are read for one page of all waiting jobs.
MAX_QUEUES = 200
#: States whose jobs are in a sorted set.
IN_SETS = ("scheduled", "retry", "dead", "done")


def source_of(keys: Keys, state: State) -> str:
    """The sorted set of a state. Raises BadOption for the states that have none."""
    sets = {"scheduled": keys.scheduled, "retry": keys.retry, "dead": keys.dead, "done": keys.done}
    if state not in sets:
        raise BadOption(f"{state!r} is none of {', '.join(sets)}")
    return sets[state]


def view(redactor: Redactor, state: State, entry: StoredEntry, *, place: int | None = None) -> JobView:
    """The redacted view of an entry of a queue or sorted set."""
    return of_wire(redactor, state, entry.member, entry.job, at=entry.at, place=place, problem=entry.problem)


def of_wire(
    redactor: Redactor, state: State, payload: bytes, wire: codec.Wire | None, **more: Any
) -> JobView:
    """The redacted view of a job; `more` are the fields that depend on its state."""
    if wire is None:
        return JobView("", "", state, payload=payload, **more)
    secrets = redactor.secrets(wire)
    attempt = 1 + wire.fails + wire.deaths + wire.snoozes
    if state == "done":
        ended = _ended(payload)
        more |= {"done_at": ended.done_at / 1000 if ended.done_at else None, "ran": ended.ran}
    return JobView(
        wire.id, wire.name, state,
        args=redactor.args(wire.name, wire.args), source=wire.source, enqueued_at=_enqueued_at(state, wire), due_at=_due_at(state, wire),
        attempt=attempt, attempts=attempt if state in ("running", "done") else attempt - 1, fails=wire.fails, deaths=wire.deaths, snoozes=wire.snoozes,
        error=redactor.text(wire.err, secrets), trace=redactor.text(wire.trace, secrets), failed_at=float(wire.failed_at) or None,
        expires_at=wire.expires / 1000 if wire.expires else None, unique_key=redactor.text(wire.unique_key, secrets),
        headers=redactor.headers(wire), parent=codec.origin_text(wire.parent), producer=codec.origin_text(wire.producer),
        past=tuple(
            PastAttempt(one.attempt, float(one.at), float(one.ran), redactor.text(one.error, secrets), one.died_in)
            for one in codec.past(wire)
        ),
        payload=payload, **more,
    )  # fmt: skip


class _Ended(msgspec.Struct):
    """The fields that only completed jobs have."""

    done_at: float = 0.0
    ran: float | None = None


def _ended(payload: bytes) -> _Ended:
    try:
        return msgspec.json.decode(payload, type=_Ended)
    except codec.UNREADABLE:
        return _Ended()


def _enqueued_at(state: State, wire: codec.Wire) -> float | None:
    return codec.first_enqueued(wire, settled=state in ("scheduled", "retry", "dead")) or None


def _due_at(state: State, wire: codec.Wire) -> float | None:
    # What ended an attempt has stamped `at` anew; `t` is still when the job was enqueued or became due.
    if state not in ("retry", "dead", "done"):
        return codec.enqueued_at(wire) or None
    return float(wire.t) or None


# Pages.


def page(
    session: Session,
    state: State,
    *,
    name: str | None = None,
    where: Filter | str | None = None,
    after: str = "",
    size: int = 50,
    newest_first: bool | None = None,
) -> Steps[JobPage]:
    """Jobs in one state, page by page. `name` chooses one queue of waiting jobs. Running jobs are those that pools hold.

    Without a name waiting jobs come queue by queue, in the order of their names. With a filter a page may be short, even
    empty, and have a next: 3,000 entries are searched for one. Of each queue the first 10,000 are listed, from either
    end. Raises BadOption.
    """
    wanted = filter_of(where)
    size = max(1, min(size, inspect.MAX_ENTRIES))
    if state == "waiting":
        newest = bool(newest_first)
        queue = name or wanted.name
        if queue:
            return (yield from _waiting(session, queue, wanted, after, size, newest_first=newest))
        return (yield from _waiting_anywhere(session, wanted, after, size, newest_first=newest))
    if name is not None:
        raise BadOption("name is for waiting jobs; elsewhere write where='name=...'")
    if state == "running":
        return (yield from _running(session, wanted, after, size))
    if newest_first is None:
        newest_first = state in ("dead", "done")
    return (yield from _in_set(session, state, wanted, after, size, newest_first=newest_first))


def _in_set(
    session: Session, state: State, wanted: Filter, after: str, size: int, *, newest_first: bool
) -> Steps[JobPage]:
    source = source_of(session.keys, state)
    cursor = (yield from _read_cursor(source, after, newest_first=newest_first)) if after else None
    found: list[JobView] = []
    redactor = Redactor(session)
    searched = 0
    while True:
        most = size if wanted.empty else inspect.MAX_ENTRIES
        seen = yield from ask(inspect.page(source, after=cursor, size=most, newest_first=newest_first))
        yield from redactor.learn(entry.job.name for entry in seen.entries if entry.job is not None)
        for number, entry in enumerate(seen.entries, 1):
            searched += 1
            if matches(wanted, redactor, state, entry, seen.now):
                found.append(view(redactor, state, entry))
            if len(found) >= size:
                last = number == len(seen.entries) and seen.next is None
                stop = None if last else Cursor(entry.at or 0.0, entry.member)
                return _page(seen, state, found, stop, searched)
        cursor = seen.next
        if cursor is None or wanted.empty or searched >= MAX_FILTERED:
            return _page(seen, state, found, cursor, searched)


def matches(wanted: Filter, redactor: Redactor, state: State, entry: StoredEntry, now: float) -> bool:
    """Whether an entry matches a filter. It sees redacted errors only, so that no filter can guess a hidden value."""
    error = redactor.error(entry.job) if wanted.reads_error and entry.job is not None else None
    return wanted.matches(entry.job, age_of(state, entry.job, entry.at, now), error)


def _page(seen: Page, state: State, found: list[JobView], stop: Cursor | None, searched: int) -> JobPage:
    return JobPage(seen.now, state, seen.total, tuple(found), _cursor_text(stop) if stop else "", searched)


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
    session: Session, name: str, wanted: Filter, after: str, size: int, *, newest_first: bool
) -> Steps[JobPage]:
    if after and not after.isdecimal():
        raise BadOption(
            f"{after[:80]!r} is not a cursor of a queue: use the cursor that the page before returned"
        )
    offset = first = int(after or 0)
    found: list[JobView] = []
    redactor = Redactor(session)
    while True:
        if offset >= MAX_DEEP:
            raise BadOption(f"only the first {MAX_DEEP:,} jobs of a queue are shown, from either end")
        most = min(size if wanted.empty else inspect.MAX_ENTRIES, MAX_DEEP - offset)
        seen = yield from ask(
            inspect.peek(session.keys, name, offset=offset, size=most, newest_first=newest_first)
        )
        yield from redactor.learn(entry.job.name for entry in seen.entries if entry.job is not None)
        for entry in seen.entries:
            place = seen.total - 1 - offset if newest_first else offset
            offset += 1
            if matches(wanted, redactor, "waiting", entry, seen.now):
                found.append(view(redactor, "waiting", entry, place=place))
            if len(found) >= size:
                break
        over = not seen.entries or offset >= min(seen.total, MAX_DEEP)
        if over or len(found) >= size or wanted.empty or offset - first >= MAX_FILTERED:
            following = "" if over else str(offset)
            beyond = max(0, seen.total - MAX_DEEP)
            return JobPage(seen.now, "waiting", seen.total, tuple(found), following, offset - first, beyond)


def _waiting_anywhere(
    session: Session, wanted: Filter, after: str, size: int, *, newest_first: bool
) -> Steps[JobPage]:
    """One page of the waiting jobs of all queues, by name. Its cursor is the name of a queue and an offset in it."""
    first, passed = _read_place(after) if after else ("", 0)
    overview = yield from inspect.all_queues(session.keys)
    queues = [queue for queue in overview.queues if queue.size and not queue.wrong]
    ahead = [queue.name for queue in queues if queue.name >= first and wanted.fits_name(queue.name)]
    found: list[JobView] = []
    searched, following = 0, ""
    for number, name in enumerate(ahead):
        if number >= MAX_QUEUES or len(found) >= size or searched >= MAX_FILTERED:
            following = _place_text(name, 0)
            break
        start = str(passed) if name == first else ""
        seen = yield from _waiting(session, name, wanted, start, size - len(found), newest_first=newest_first)
        found += seen.jobs
        searched += seen.searched
        if seen.next:
            following = _place_text(name, int(seen.next))
            break
    total = sum(queue.size for queue in queues)
    beyond = sum(max(0, queue.size - MAX_DEEP) for queue in queues)
    return JobPage(overview.now, "waiting", total, tuple(found), following, searched, beyond)


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
    holders = yield from ask_all([consume.pool_ids(session.keys), consume.condemned_ids(session.keys)])
    ids = list(dict.fromkeys(holders[0] + holders[1]))
    tokens = yield from ask_all([consume.held_tokens(session.keys, pool_id) for pool_id in ids])
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


def _running(session: Session, wanted: Filter, after: str, size: int) -> Steps[JobPage]:
    if after and not after.isdecimal():
        raise BadOption(
            f"{after[:80]!r} is not a cursor of running jobs: use the cursor that the page before returned"
        )
    now = yield from ask(inspect.now())
    attempts = yield from held(session)
    offset = first = int(after or 0)
    redactor = Redactor(session)
    found: list[JobView] = []
    while offset < len(attempts) and len(found) < size:
        batch = attempts[offset : offset + min(size - len(found), maintain.BATCH)]
        offset += len(batch)
        jobs = yield from read_held(session, batch)
        yield from redactor.learn(entry.job.name for _, _, entry in jobs if entry.job is not None)
        for pool_id, token, entry in jobs:
            if matches(wanted, redactor, "running", entry, now):
                more = {"problem": entry.problem, "pool_id": pool_id, "token": token}
                found.append(of_wire(redactor, "running", entry.member, entry.job, **more))
    following = str(offset) if offset < len(attempts) else ""
    return JobPage(now, "running", len(attempts), tuple(found), following, offset - first)


def broken(session: Session, *, offset: int = 0, size: int = 50) -> Steps[BrokenPage]:
    """Entries that could not be read as jobs, oldest first; the first 10,000 can be paged through.

    Their `payload` is redacted and may be shown. Their `entry`, which actions need, is not.
    """
    if not 0 <= offset < MAX_DEEP:
        raise BadOption(f"only the first {MAX_DEEP:,} broken entries are shown")
    found = yield from ask(inspect.broken(session.keys, offset=offset, size=size))
    types = yield from _all_hidden(session)

    def shown(payload: bytes) -> bytes:
        return HIDDEN.encode() if types is None else veiled(payload, types)

    return BrokenPage(
        found.total, tuple(replace(entry, payload=shown(entry.payload)) for entry in found.entries)
    )


def _all_hidden(session: Session) -> Steps[frozenset[str] | None]:
    """All arguments that any job type hides, since the type of broken bytes is not known. None if job types cannot be read."""
    try:
        known = yield from job_types.every(session.keys)
    except Rejected:
        return None
    return session.hide.union(*(one.described.redact for one in known))


# One job.


def locate(session: Session, job: JobView | Seen | str) -> Steps[JobView | None]:
    """Find a job in its present state. A JobView is returned unchanged."""
    if isinstance(job, JobView):
        return job
    seen = Seen(job) if isinstance(job, str) else job
    if seen.state in IN_SETS and seen.at is not None:
        found = yield from _by_moment(session, seen, seen.state)
        if found is not None:
            return found
    whereabouts = yield from find.find_job(session.keys, seen.id, seen.name)
    return None if whereabouts is None else (yield from _found(session, seen.id, whereabouts))


def still(session: Session, jobs: Sequence[Seen]) -> Steps[tuple[bool, ...]]:
    """Whether each of these jobs is still where it was seen."""
    found: list[bool] = []
    for seen in jobs:
        if seen.state in IN_SETS and seen.at is not None:
            found.append((yield from _by_moment(session, seen, seen.state)) is not None)
        else:
            where = yield from find.find_job(session.keys, seen.id, seen.name, quick=True)
            found.append(where is not None and where.state == seen.state)
    return tuple(found)


def _by_moment(session: Session, seen: Seen, state: Any) -> Steps[JobView | None]:
    """Find a job in a sorted set of any size, by its score."""
    source = source_of(session.keys, state)
    found = None if seen.at is None else (yield from find.find_at(source, seen.id, seen.at))
    if found is None:
        return None
    payload, wire = found
    redactor = Redactor(session)
    yield from redactor.learn([wire.name])
    return of_wire(redactor, state, payload, wire, at=seen.at)


def _found(session: Session, job_id: str, found: find.Found) -> Steps[JobView]:
    redactor = Redactor(session)
    yield from redactor.learn([found.name])
    result, error = None, ""
    if found.result is not None:
        secrets = [] if found.job is None else redactor.secrets(found.job)
        try:
            answer = codec.json_value(found.result)
            result = redactor.result(found.name, answer.get("result"), secrets)
            error = redactor.text(str(answer.get("error", "")), secrets)
        except (AttributeError, *codec.UNREADABLE):
            result = None
    if found.job is None:
        return JobView(job_id, found.name, found.state, result=result, error=error)
    place = found.place if found.state == "waiting" else None
    return of_wire(
        redactor, found.state, found.payload, found.job,
        at=found.at, place=place, pool_id=found.pool_id, token=found.token, result=result,
    )  # fmt: skip


def detail(
    session: Session, job_id: str, *, name: str | None = None, quick: bool = False
) -> Steps[JobDetail | None]:
    """One job by its id, in any state, with its timeline and why it is not running; None when it is not found.

    A job that finished is found as long as the history has its attempts: with its name always, without among the newest
    20,000 records.

    Of each queue the first 10,000 are searched; a quick search stops at 1,000 of each and 10,000 of all.
    """
    found = yield from find.find_job(session.keys, job_id, name, quick=quick)
    if found is None:
        return (yield from _finished(session, job_id, name))
    job = yield from _found(session, job_id, found)
    why = yield from _reason(session, found, job.error)
    now = yield from ask(inspect.now())
    attempts = (yield from attempts_of(session, job_id, job.name)) if job.attempts and job.name else ()
    return JobDetail(job, sentence(why), timeline(job, now), *copies(job), why.kind, attempts)


def _finished(session: Session, job_id: str, name: str | None) -> Steps[JobDetail | None]:
    """A job that is stored nowhere, as the history has it."""
    attempts = yield from attempts_of(session, job_id, name)
    if not attempts:
        return None
    now = yield from ask(inspect.now())
    last = attempts[-1]
    job = JobView(
        job_id, last.name, "finished", source=last.source, enqueued_at=last.enqueued_at, attempt=last.attempt,
        attempts=last.attempt, done_at=last.ended_at, ran=last.ran, pool_id=last.pool_id, parent=last.parent,
    )  # fmt: skip
    why = _finish_of(last, now)
    events = [*_came_in(job, now), *map(_ended_event, attempts)]
    return JobDetail(
        job, sentence(why), tuple(events), f"enqueuer.enqueue({job.name!r}, ...)",
        f"dayjob enqueue {shlex.quote(job.name)} ...", why.kind, attempts,
    )  # fmt: skip


def _finish_of(last: AttemptRecord, now: float) -> JobFinished:
    return JobFinished(last.outcome, max(0.0, now - last.ended_at), last.attempt, last.ran, last.error)


def _ended_event(one: AttemptRecord) -> Event:
    ran = f" after {text.took(one.ran)}" if one.ran is not None else ""
    error = f": {one.error}" if one.error else ""
    kind: EventKind = "crashed" if one.outcome == "crashed" else "failed" if one.failed else "ended"
    return Event(one.ended_at, f"attempt {one.attempt} {one.outcome.replace('_', ' ')}{ran}{error}", kind)


def logs(session: Session, job_id: str, *, name: str | None = None) -> Steps[tuple[LoggedLines, ...]]:
    """What the attempts of a job logged, oldest first, without redacted values: for job types with `keep_logs`."""
    found = yield from ask(history.logs(session.keys, job_id))
    if not found:
        return ()
    texts = [(number, raw.decode("utf-8", "replace")) for number, raw in found]
    stored = yield from find.find_job(session.keys, job_id, name, quick=True)
    if stored is not None and stored.job is not None:
        # The attempt redacted what its job type names. This console may hide more.
        redactor = Redactor(session)
        yield from redactor.learn([stored.name])
        secrets = redactor.secrets(stored.job)
        texts = [(number, redactor.text(one, secrets)) for number, one in texts]
    return tuple(LoggedLines(number, one) for number, one in texts)


def explain(session: Session, job_id: str, *, name: str | None = None) -> Steps[str]:
    """Why a job is not running, in one sentence; where something can be done about it, a second line has the next step."""
    found = yield from find.find_job(session.keys, job_id, name)
    if found is None:
        attempts = yield from attempts_of(session, job_id, name)
        if attempts:
            now = yield from ask(inspect.now())
            return sentence(_finish_of(attempts[-1], now))
        return sentence(JobNotFound(job_id))
    job = yield from _found(session, job_id, found)
    return sentence((yield from _reason(session, found, job.error)))


def _reason(session: Session, found: find.Found, error: str) -> Steps[Reason]:
    why = yield from reason(session.keys, found, error)
    if isinstance(why, JobWaiting) and why.moves:
        return replace(why, per_minute=(yield from recent_rate(session, found.name)) or None)
    return why


def timeline(job: JobView, now: float) -> tuple[Event, ...]:
    """The known events of a job, in order."""
    # Of two events at the same moment the first stays first: the job was due again after the attempt had failed.
    events = [*map(_ended_badly, job.past), *_came_in(job, now)]
    if job.failed_at is not None and not any(int(one.at) == int(job.failed_at) for one in job.past):
        line = job.error.strip().partition("\n")[0][:200]
        made = job.attempt - 1
        # An operator can move a job to dead between two attempts: that error is no attempt's.
        outside = not made or (job.past and job.past[-1].attempt >= made)
        text_of = line if outside else f"attempt {made} failed: {line}"
        events.append(Event(job.failed_at, text_of, "failed"))
    if job.state == "dead" and job.at is not None:
        # Dead keeps the second alone, which may begin before the attempt of that second failed.
        events.append(Event(max([job.at, *(event.at for event in events)]), "moved to dead", "died"))
    elif job.at is not None:
        words = {"scheduled": "due", "retry": "next attempt", "done": "dropped from done"}
        events.append(
            Event(job.at, words.get(job.state, job.state), "dropped" if job.state == "done" else "due")
        )
    if job.expires_at is not None:
        events.append(Event(job.expires_at, "expires", "expires"))
    # Enqueued comes first, whatever the clock of the enqueuer was.
    return tuple(sorted(events, key=lambda event: (event.kind != "enqueued", event.at)))


def _came_in(job: JobView, now: float) -> list[Event]:
    """When it was enqueued, and when it last became due where that is another moment."""
    events: list[Event] = []
    if job.enqueued_at is not None and job.enqueued_at <= now + 1:
        events.append(Event(job.enqueued_at, "enqueued", "enqueued"))
    due = job.due_at
    if due is None or due > now + 1 or (job.enqueued_at is not None and due <= job.enqueued_at):
        return events
    # The attempt that ended last began after the job was due; those before it ended before.
    before = job.past[:-1] if job.state in ("retry", "dead") else job.past
    if job.enqueued_at is None and not before:
        return [Event(due, "queued", "due")]
    # Side sets keep the second alone, which may begin before the attempt of that second failed.
    due = max(due, before[-1].at) if before and due == int(due) else due
    return [*events, Event(due, "due again" if before else "due", "due")]


def _ended_badly(one: PastAttempt) -> Event:
    if one.died_in:
        return Event(one.at, f"attempt {one.attempt}: {one.error} (pool {one.died_in})", "crashed")
    ran = f" after {text.took(one.ran)}" if one.ran else ""
    return Event(one.at, f"attempt {one.attempt} failed{ran}: {one.error}", "failed")


def copies(job: JobView) -> tuple[str, str]:
    """The code that enqueues a job like this one: in Python, and as a command."""
    args = job.args if isinstance(job.args, dict) else {}
    pairs = ", ".join(f"{key!r}: {value!r}" for key, value in args.items())
    python = f"enqueuer.enqueue({job.name!r}, **{{{pairs}}})"
    text = codec._write(args).decode()
    command = f"dayjob enqueue {shlex.quote(job.name)}" + (f" --json {shlex.quote(text)}" if args else "")
    if HIDDEN in text:
        python, command = f"{python}  # fill in what is {HIDDEN}", f"{command}  # fill in what is {HIDDEN}"
    elif isinstance(job.args, str):
        # All of them are hidden.
        python = f"enqueuer.enqueue({job.name!r})  # add its arguments: {job.args}"
        command += f"  # add its arguments: {job.args}"
    return python, command
