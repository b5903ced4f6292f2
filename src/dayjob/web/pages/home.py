"""Home: the verdict in words, the counts, the last hour, and what waits, fails and runs longest."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.admin.views import Metrics, Note
from dayjob.web import charts
from dayjob.web.console import Console
from dayjob.web.pages.shell import Values, look, page, recent
from dayjob.web.render import share

#: How many lines each of the short tables has.
SOME = 5
#: How many failed jobs of each set are looked at.
MOST_LOOKED = 500
_DAY = 86400.0
_SETS = {
    "scheduled": "/scheduled_jobs", "retry": "/retry_jobs", "dead": "/dead_jobs", "done": "/done_jobs",
    "broken": "/broken",
}  # fmt: skip


@page("home.html", "/", "Home")
async def home(request: Request, admin: AsyncAdmin) -> Values:
    """The first page."""
    console: Console = request.app.state.console
    verdict = await look(console)
    listing = await admin.queues()
    pools = await admin.pools()
    metrics = await figures(console, 1)
    failures = await recent(
        console, "failing", 5.0, lambda: console.admin.failures(window=_DAY, most=MOST_LOOKED)
    )
    busy = await admin.busy()
    waiting = sorted(
        (one for one in listing.queues if one.queue.size),
        key=lambda one: (-(one.queue.age or 0), -one.queue.size),
    )
    names = {one.queue.name for one in listing.queues}
    ended, failed = last_minutes(metrics)
    return {
        "queues": listing.queues, "waiting": waiting[:SOME], "failing": failures.groups[:SOME], "busy": busy[:SOME],
        "pools": pools, "workers": sum(one.status.concurrency for one in pools.pools if one.status),
        "oldest": max((one.queue.age or 0.0 for one in waiting), default=0.0),
        "rate": ended / 5, "failed_rate": f"{share(failed, ended)} failed" if ended else "in the last 5 minutes",
        "throughput": throughput(metrics, "Jobs that ended in each minute of the last hour"),
        "fresh": not names and not pools.pools and not verdict.sizes.dead and not any(one.series for one in metrics.jobs),
        "places": lambda note: place_of(note, names),
    }  # fmt: skip


async def figures(console: Console, hours: int) -> Metrics:
    """The figures of some hours; over many hours little changes from one moment to the next."""
    return await recent(console, f"metrics {hours}", 2.0 + hours / 5, lambda: console.admin.metrics(hours))


def last_minutes(metrics: Metrics) -> tuple[int, int]:
    """Attempts that ended in the last five whole minutes, and those that failed."""
    return (
        sum(sum(job.series[-6:-1]) for job in metrics.jobs),
        sum(sum(job.fails[-6:-1]) for job in metrics.jobs),
    )


def throughput(metrics: Metrics, what: str, name: str = "") -> charts.Chart:
    """What ended and failed in each step, of one job or of all."""
    jobs = [job for job in metrics.jobs if name in ("", job.name)]
    steps = range(len(metrics.starts))
    ended = [sum(job.series[place] for job in jobs) for place in steps]
    failed = [sum(job.fails[place] for job in jobs) for place in steps]
    return charts.bars(metrics.starts, metrics.step, ended, failed, what)


def place_of(note: Note, names: set[str]) -> tuple[str, dict[str, Any]] | None:
    """Where to look at what a note says."""
    if note.subject in _SETS and note.subject not in names:
        return _SETS[note.subject], {}
    if note.subject in names:
        return "/queue", {"name": note.subject}
    return ("/worker_pools", {}) if note.subject or "pool" in note.text else None
