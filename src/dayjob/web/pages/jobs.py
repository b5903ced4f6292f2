"""Jobs: lists by state, with filters, and a permanent page for each job."""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dayjob.admin import sorting, verbs
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.filters import KEYS, filter_of
from dayjob.admin.jobs import RESULT_OF_NODE, SEARCH_DEPTHS
from dayjob.admin.views import BusyWorker, JobDetail, JobPage, JobView, State, Verdict
from dayjob.errors import BadOption
from dayjob.handlers.redact import HIDDEN
from dayjob.text import source_text
from dayjob.web.console import WebConsole
from dayjob.web.order import Order
from dayjob.web.pages import traces
from dayjob.web.pages.shell import Endpoint, Values, failure, look, page
from dayjob.web.render import address, brief, number, took
from dayjob.web.responses import shown_key

SIZE = 50
#: The most characters of arguments in the address of the enqueue form.
MAX_IN_ADDRESS = 4000
#: A plain word that may be an ID.
_ID = re.compile(r"[\w.:-]{16,200}")

_ABOUT = {
    "waiting": "Jobs in their queues, by queue name. In each queue the next job to run is first.",
    "running": "Attempts that pools hold.",
    "scheduled": "Jobs that are due later, soonest first.",
    "retry": "Jobs that failed and will be retried, soonest first.",
    "dead": "Jobs that failed for good, newest first. Retry them after you have deployed a fix.",
    "done": "Completed jobs of job types with keep=.",
}
_NOTHING = {
    "waiting": ("No job waits", "Everything that was enqueued has been fetched."),
    "running": ("No job runs", "No pool is running a job now."),
    "scheduled": ("Nothing is scheduled", "A job can be enqueued for later:", "dayjob enqueue send_mail to=ada@example.com --in 5m"),
    "retry": ("No job waits for a retry", "Jobs that failed appear here until they are retried."),
    "dead": ("No job is dead", "Jobs that failed too often appear here until an operator retries or deletes them."),
    "done": ("No completed jobs are kept", "To keep them, set keep= on the job type:", "@pool.job(keep=86400)"),
}  # fmt: skip
_TABS: tuple[tuple[State, str, str], ...] = (
    ("waiting", "/jobs", "Waiting"), ("running", "/jobs", "Running"), ("scheduled", "/scheduled_jobs", "Scheduled"),
    ("retry", "/retry_jobs", "Retry"), ("dead", "/dead_jobs", "Dead"), ("done", "/done_jobs", "Done"),
)  # fmt: skip


def _listing(state: State, here: str, title: str) -> Endpoint:
    @page("jobs.html", here, title)
    async def endpoint(request: Request, admin: AsyncAdmin) -> Values:
        return await _list(request, admin, state)

    return endpoint


scheduled = _listing("scheduled", "/scheduled_jobs", "Scheduled jobs")
retry = _listing("retry", "/retry_jobs", "Retry jobs")
dead = _listing("dead", "/dead_jobs", "Dead jobs")
done = _listing("done", "/done_jobs", "Done jobs")


@page("jobs.html", "/jobs", "Jobs")
async def jobs(request: Request, admin: AsyncAdmin) -> Values:
    """Jobs of the state in the query; waiting jobs by default."""
    state = request.query_params.get("state", "waiting")
    known = {one: title for one, _, title in _TABS}
    chosen: State = state if state in known else "waiting"
    return await _list(request, admin, chosen)


async def _list(request: Request, admin: AsyncAdmin, state: State) -> Values:
    asked = request.query_params
    where, after, name = asked.get("where", "").strip(), asked.get("after", ""), asked.get("name", "")
    if _ID.fullmatch(where) and await admin.job(where, quick=True) is not None:
        return {"response": RedirectResponse(address(request, "/job", id=where), 303)}
    order = Order.of(request, sorting.JOBS[state])
    console: WebConsole = request.app.state.console
    verdict = await look(console)
    problem, status = "", 200
    found = JobPage(verdict.now, state, 0, ())
    try:
        if state == "waiting":
            name = name or filter_of(where).name or ""
            found = await admin.jobs(
                state, name=name or None, where=where, after=after, size=SIZE, sort=order.sort
            )
        else:
            found = await admin.jobs(state, where=where, after=after, size=SIZE, sort=order.sort)
    except BadOption as error:
        problem, status = str(error), 400
    names = (await admin.queue_names())[:50]
    path = next(path for one, path, _ in _TABS if one == state)
    return {
        "status": status, "problem": problem, "page": found, "order": order, "state": state, "where": where, "after": after, "name": name,
        "about": _ABOUT[state], "now": found.now, "nothing": _NOTHING, "icons": {one: one for one, _, _ in _TABS},
        "bulk": () if state == "waiting" and not (name or where) else verbs.offered_for_all(state),
        "conditions": [
            *(f"name={one}" for one in names if " " not in one),
            *(one.example for one in KEYS.values() if not one.states or state in one.states),
        ],
        "tabs": _tabs(verdict), "title": _title(state, name),
        "at": partial(address, request, path, state=state if path == "/jobs" else "", name=name),
    }  # fmt: skip


def _title(state: State, name: str) -> str:
    title = {"waiting": "Waiting jobs", "running": "Running jobs"}.get(state, f"{state.capitalize()} jobs")
    return f"{title} of {name}" if name else title


def _tabs(verdict: Verdict) -> list[dict[str, Any]]:
    counts = {"waiting": verdict.waiting, "running": verdict.running}
    return [
        {
            "state": state, "path": path, "words": words, "count": counts.get(state, max(0, getattr(verdict.sizes, state, 0))),
            "query": {"state": state} if path == "/jobs" else {},
        }
        for state, path, words in _TABS
    ]  # fmt: skip


# One job.


@page("job.html", "/jobs", "Job")
async def job(request: Request, admin: AsyncAdmin) -> Values:
    """One job by `id`, in any state; `name` is the queue to search first."""
    job_id, name = request.query_params.get("id", ""), request.query_params.get("name") or None
    if not job_id:
        return {
            "response": await failure(
                request, 404, "No job is named.", "The address needs an ID: /job?id=..."
            )
        }
    quick = not request.query_params.get("deep")
    detail = await admin.job(job_id, name=name, quick=quick)
    if detail is None and name is not None:
        detail = await admin.job(job_id, quick=quick)
    if detail is None:
        return {"response": await _nowhere(request, job_id, quick=quick)}
    verdict = await look(request.app.state.console)
    now = verdict.now
    return {
        "detail": detail, "worker": await _worker(admin, detail.job), "trace": traces.split(detail.job.trace),
        "timeline": _timeline(detail, now), "facts": _facts(detail), "again": _again(request, detail.job), "now": now,
        "emitted": await admin.emitted(job_id) if detail.job.attempts or detail.job.state == "running" else None,
        "logs": await admin.logs(job_id, name=detail.job.name or None), "children": await admin.children(job_id) if detail.job.attempts else (),
        "attempts_order": Order.of(request, sorting.OWN_ATTEMPTS, "attempts"), "children_order": Order.of(request, sorting.HISTORY, "children"),
    }  # fmt: skip


async def _nowhere(request: Request, job_id: str, *, quick: bool) -> Response:
    most, some, of_all = SEARCH_DEPTHS
    if not quick:
        sentence = f"No job {job_id[:200]!r} is waiting, running or kept: it completed, was deleted or never existed."
        hint = f"The first {most:,} jobs of each queue and state were searched, and the newest records of the history."
        return await failure(request, 404, sentence, hint)
    sentence = (
        f"No job {job_id[:200]!r} was found: it completed, was deleted, never existed, or is further back."
    )
    hint = f"The first {some:,} jobs of each queue and state were searched, at most {of_all:,} in all queues, and the newest records of the history."
    return await failure(request, 404, sentence, hint, address(request, "/job", id=job_id, deep=1))


async def _worker(admin: AsyncAdmin, found: JobView) -> BusyWorker | None:
    if found.state != "running":
        return None
    workers = await admin.busy(pool_id=found.pool_id)
    return next((one for one in workers if one.worker.token == found.token), None)


def _facts(detail: JobDetail) -> list[tuple[str, str, float | None]]:
    """The facts about a job: a label, and a text or a time."""
    job = detail.job
    # Payloads and scores have whole seconds, in which a failure may seem older than its job.
    ends = {int(one.ended_at): one.ended_at for one in detail.attempts}
    over = job.state in ("retry", "dead")
    ahead = f", {number(job.place)} ahead" if job.place is not None else ""
    kept = {"scheduled": "Due", "retry": "Due", "dead": "Died", "done": "Kept until"}
    found: list[tuple[str, str | int | None, float | None]] = [
        ("State", job.state + ahead, None), ("Attempts" if over else "Attempt", job.attempts if over else job.attempt, None),
        ("Fails", job.fails or None, None), ("Deaths", job.deaths or None, None), ("Snoozes", job.snoozes or None, None),
        ("Source", job.source, None), ("Enqueued", "not known" if job.enqueued_at is None else None, job.enqueued_at),
        ("Became due", None, _became_due(job)), ("Failed", None, None if job.failed_at is None else ends.get(int(job.failed_at), job.failed_at)),
        ("Done", None, job.done_at), ("Ran", None if job.ran is None else took(job.ran), None),
        (kept.get(job.state, ""), None, ends.get(int(job.at), job.at) if job.state == "dead" and job.at else job.at), ("Expires", None, job.expires_at),
        ("Unique", shown_key(job) or None, None),
    ]  # fmt: skip
    return [
        (words, "" if value is None else str(value), at)
        for words, value, at in found
        if words and (value is not None or at)
    ]


def _became_due(job: JobView) -> float | None:
    """When the job last entered its queue, if that was after its first enqueue."""
    if job.due_at is None or job.state == "scheduled":
        return None
    return job.due_at if job.enqueued_at is None or job.due_at >= job.enqueued_at + 1 else None


def _timeline(detail: JobDetail, now: float) -> list[dict[str, Any]]:
    """The events with their kinds and the times between them."""
    events: list[dict[str, Any]] = []
    before: float | None = None
    for event in detail.timeline:
        bad = event.kind in ("failed", "crashed", "died")
        kind = "next" if event.at > now + 1 else "err" if bad else "ok"
        gap = ""
        if before is not None and kind != "next" and event.at - before >= 1:
            gap = f"{brief(event.at - before)} later"
        events.append(dataclasses.asdict(event) | {"kind": kind, "gap": gap})
        before = event.at
    return events


def _again(request: Request, found: JobView) -> str:
    """The address of the form that enqueues the same job, with the names of the arguments that it leaves out."""
    args = found.args if isinstance(found.args, dict) else {}
    texts = {key: msgspec.json.encode(value).decode() for key, value in args.items()}
    hidden = [key for key, text in texts.items() if HIDDEN in text]
    large: list[str] = []
    taken = [key for key, text in texts.items() if RESULT_OF_NODE in text]
    fitting = {key: len(key) + len(text) for key, text in texts.items() if key not in (*hidden, *taken)}
    while sum(fitting.values()) > MAX_IN_ADDRESS:
        large.append(max(fitting, key=lambda key: fitting[key]))
        del fitting[large[-1]]
    shown = {key: args[key] for key in fitting}
    return address(
        request, "/enqueue", name=found.name, args=msgspec.json.encode(shown).decode() if shown else "",
        source=source_text(found.source), hidden=_names(hidden), large=_names(large), taken=_names(taken),
    )  # fmt: skip


def _names(names: list[str]) -> str:
    """Names of arguments for an address; only the first if there are many."""
    return msgspec.json.encode([name[:100] for name in names[:20]]).decode() if names else ""
