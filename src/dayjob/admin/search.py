"""Search: one text over everything an operator may look for: jobs, queues, pools, schedules, sources and errors. Reads only.

Names are searched as a whole. Of the jobs of each state a bounded part is read, and the answer shows how much that was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dayjob.admin.filter_checks import kind_of
from dayjob.admin.filters import Filter, FilterCondition
from dayjob.admin.job_lists import held, read_held
from dayjob.admin.jobs import detail, of_wire, source_of, view
from dayjob.admin.matcher import Matcher
from dayjob.admin.session import Session
from dayjob.admin.views import JobView, SearchedPart, SearchHit, SearchView, State
from dayjob.errors import Rejected
from dayjob.store.ops import inspect, job_types, maintain, pools
from dayjob.store.ops.inspect import StoredEntry
from dayjob.store.steps import Steps, ask

#: How many jobs of each state are read, and how many queues are looked into for waiting jobs.
MAX_READ = 300
MAX_QUEUES = 50
#: Shorter texts are not looked up as a whole id: ids that dayjob makes are longer.
SHORTEST_ID = 8
#: How many hits of each kind are shown.
MAX_HITS = 10
#: Longer texts are cut.
MAX_TEXT = 200
_SETS: tuple[State, ...] = ("dead", "retry", "scheduled", "done")


def search(session: Session, text: str) -> Steps[SearchView]:
    """Search for a text: the beginning of an ID, a part of a name, an error or an argument.

    All job names, queues, pools and schedules are searched, and the first 300 jobs of each state.
    """
    word = text.strip()[:MAX_TEXT].casefold()
    if not word:
        return SearchView("", (), ())
    hits = [
        *(yield from _names(session, word)),
        *(yield from _pools(session, word)),
        *(yield from _schedules(session, word)),
    ]
    if not hits:
        # A part of a name is no id, and to find no job with an id costs more than all the rest of the search.
        hits += yield from _by_id(session, text.strip()[:MAX_TEXT])
    jobs: list[JobView] = []
    parts: list[SearchedPart] = []
    wanted = Filter((FilterCondition("text", "~", word, word),))
    for state in _SETS:
        found, part = yield from _in_set(session, state, wanted)
        jobs += found
        parts.append(part)
    for found, part in ((yield from _waiting(session, wanted)), (yield from _running(session, wanted))):
        jobs += found
        parts.append(part)
    known = {hit.id for hit in hits}
    hits += _sources(word, jobs)
    hits += _errors(word, jobs)
    hits += [_job_hit(job) for job in jobs if job.id not in known][:MAX_HITS]
    return SearchView(text.strip()[:MAX_TEXT], tuple(hits), tuple(parts))


def _job_hit(job: JobView) -> SearchHit:
    error = job.error.strip().partition("\n")[0][:200]
    return SearchHit("job", job.name, job.id, job.state, error)


def _by_id(session: Session, text: str) -> Steps[list[SearchHit]]:
    """The job whose whole id this is. Short ones are found among the jobs that are read."""
    if len(text) < SHORTEST_ID or not text.isprintable() or " " in text:
        return []
    found = yield from detail(session, text, quick=True)
    return [] if found is None else [_job_hit(found.job)]


def _names(session: Session, word: str) -> Steps[list[SearchHit]]:
    queues = set((yield from ask(maintain.known_jobs(session.keys))))
    announced: set[str] = set()
    try:
        announced = set((yield from ask(job_types.names(session.keys))))
    except Rejected:
        # A key of a wrong type; the doctor reports it.
        announced = set()
    names = _nearest(word, queues | announced)
    return [SearchHit("queue", name) for name in names]


def _nearest(word: str, names: Iterable[str]) -> list[str]:
    """The names that have a word: those that are it first, then those that begin with it."""
    fitting = [name for name in names if word in name.casefold()]
    fitting.sort(key=lambda name: (name.casefold() != word, not name.casefold().startswith(word), name))
    return fitting[:MAX_HITS]


def _pools(session: Session, word: str) -> Steps[list[SearchHit]]:
    found = []
    for pool in (yield from pools.pools(session.keys)):
        status = pool.status
        texts = (pool.id,) if status is None else (pool.id, f"{status.host}/{status.pid}", status.tag)
        if any(word in text.casefold() for text in texts):
            about = "" if status is None else f"{status.host}/{status.pid} {status.tag}".strip()
            found.append(SearchHit("pool", pool.id, text=about))
    return found[:MAX_HITS]


def _schedules(session: Session, word: str) -> Steps[list[SearchHit]]:
    known = yield from ask(inspect.schedules(session.keys))
    fitting = [one for one in known if word in one.name.casefold() or word in one.job.casefold()]
    return [SearchHit("schedule", one.name, text=one.job) for one in fitting[:MAX_HITS]]


# Jobs.


def _in_set(session: Session, state: State, wanted: Filter) -> Steps[tuple[list[JobView], SearchedPart]]:
    source = source_of(session.keys, state)
    try:
        seen = yield from ask(inspect.page(source, size=MAX_READ, newest_first=state in ("dead", "done")))
    except Rejected:
        return [], SearchedPart(state, 0, 0)
    matcher = Matcher(session, state, wanted)
    yield from matcher.learn(seen.entries)
    jobs = [view(matcher.redactor, state, entry) for entry in seen.entries if matcher.fits(entry, seen.now)]
    return jobs, SearchedPart(state, len(seen.entries), seen.total)


def _waiting(session: Session, wanted: Filter) -> Steps[tuple[list[JobView], SearchedPart]]:
    """The next jobs of each queue, as many of each."""
    overview = yield from inspect.all_queues(session.keys)
    queues = [queue for queue in overview.queues if queue.size and not queue.wrong]
    some = queues[:MAX_QUEUES]
    most = max(1, MAX_READ // max(1, len(some)))
    pages: list[inspect.Page] = []
    for queue in some:
        pages += [(yield from inspect.peek_all(session.keys, queue.name, size=most))]
    matcher = Matcher(session, "waiting", wanted)
    jobs: list[JobView] = []
    for page in pages:
        yield from matcher.learn(page.entries)
        jobs += [
            view(matcher.redactor, "waiting", entry, place=place)
            for place, entry in enumerate(page.entries)
            if matcher.fits(entry, page.now)
        ]
    searched = sum(len(page.entries) for page in pages)
    return jobs, SearchedPart("waiting", searched, sum(queue.size for queue in queues))


def _running(session: Session, wanted: Filter) -> Steps[tuple[list[JobView], SearchedPart]]:
    attempts = yield from held(session)
    now = yield from ask(inspect.now())
    matcher = Matcher(session, "running", wanted)
    jobs: list[JobView] = []
    for first in range(0, min(len(attempts), MAX_READ), maintain.BATCH):
        batch: Sequence[tuple[str, str]] = attempts[first : first + maintain.BATCH]
        found: list[tuple[str, str, StoredEntry]] = yield from read_held(session, batch)
        yield from matcher.learn(entry for _, _, entry in found)
        jobs += [
            of_wire(matcher.redactor, "running", entry.member, entry.job, pool_id=pool_id, token=token)
            for pool_id, token, entry in found
            if matcher.fits(entry, now, pool_id)
        ]
    return jobs, SearchedPart("running", min(len(attempts), MAX_READ), len(attempts))


# What jobs have in common.


def _sources(word: str, jobs: list[JobView]) -> list[SearchHit]:
    counts: dict[str, int] = {}
    for job in jobs:
        if job.source is not None and word in str(job.source).casefold():
            counts[str(job.source)] = counts.get(str(job.source), 0) + 1
    names = sorted(counts, key=lambda name: (-counts[name], name))[:MAX_HITS]
    return [SearchHit("source", name, count=counts[name]) for name in names]


def _errors(word: str, jobs: list[JobView]) -> list[SearchHit]:
    counts: dict[tuple[str, str], int] = {}
    for job in jobs:
        if job.state in ("dead", "retry") and word in job.error.casefold():
            key = job.name, kind_of(job.error)
            counts[key] = counts.get(key, 0) + 1
    groups = sorted(counts, key=lambda key: (-counts[key], key))[:MAX_HITS]
    return [SearchHit("error", name, text=kind, count=counts[name, kind]) for name, kind in groups]
