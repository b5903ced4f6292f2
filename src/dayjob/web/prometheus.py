"""/metrics for Prometheus, computed from Redis: one scrape of one console covers all pools."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dayjob.admin.scrape import Scrape, bucket_limit
from dayjob.admin.views.batches import BatchState
from dayjob.admin.views.limits import LimitView
from dayjob.admin.views.workflows import WorkflowState
from dayjob.web.console import WebConsole
from dayjob.web.durations import DurationSums, Kind, total_time

TEXT = "text/plain; version=0.0.4; charset=utf-8"
#: Buckets that are shown: every second one from 0.8 ms to 28 min.
SHOWN = range(6, 50, 2)


# The text.


def escaped(value: str) -> str:
    """A label's value, with quotes, backslashes and line ends escaped, and without control characters."""
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return "".join(c if c.isprintable() else "\ufffd" for c in text.encode("utf-8", "replace").decode())


class _Page:
    """Lines of the text format, family by family."""

    def __init__(self, namespace: str) -> None:
        self.lines: list[str] = []
        self._namespace = namespace

    def family(self, name: str, kind: str, text: str) -> None:
        self.lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

    def sample(self, name: str, value: float, **labels: str) -> None:
        pairs = ",".join(
            f'{key}="{escaped(text)}"' for key, text in {"namespace": self._namespace, **labels}.items()
        )
        self.lines.append(f"{name}{{{pairs}}} {_number(value)}")

    def one(self, name: str, text: str, value: float, kind: str = "gauge") -> None:
        self.family(name, kind, text)
        self.sample(name, value)

    def histogram(self, name: str, buckets: Mapping[int, int], **labels: str) -> None:
        running, below = 0, sorted(buckets)
        place = 0
        for shown in SHOWN:
            while place < len(below) and below[place] <= shown:
                running += buckets[below[place]]
                place += 1
            self.sample(f"{name}_bucket", running, **labels, le=f"{bucket_limit(shown):g}")
        total = sum(buckets.values())
        self.sample(f"{name}_bucket", total, **labels, le="+Inf")
        self.sample(f"{name}_sum", total_time(buckets), **labels)
        self.sample(f"{name}_count", total, **labels)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def text(scrape: Scrape, durations: DurationSums, namespace: str, took: float) -> str:
    """All families as the text format."""
    page = _Page(namespace)
    _queues(page, scrape)
    _limits(page, scrape)
    _sets(page, scrape)
    _batches(page, scrape)
    _workflows(page, scrape)
    if scrape.outbox is not None:
        page.one("dayjob_outbox_unsent", "Rows of the outbox that were not sent.", scrape.outbox.unsent)
        page.one("dayjob_outbox_oldest_seconds", "The age of the oldest of them.", scrape.outbox.age)
        page.one("dayjob_outbox_silence_seconds", "Time since a relay last reported.", scrape.outbox.silence)
    _pools(page, scrape)
    _totals(page, scrape)
    families: tuple[tuple[Kind, str, str], ...] = (
        (
            "wait",
            "dayjob_wait_seconds",
            "How long jobs waited before an attempt; the sum is estimated from the buckets.",
        ),
        ("run", "dayjob_run_seconds", "How long attempts ran; the sum is estimated from the buckets."),
    )
    for kind, name, words in families:
        page.family(name, "histogram", words)
        for (own, job), buckets in sorted(durations.sums.items()):
            if own == kind:
                page.histogram(name, buckets, job=job)
    page.family(
        "dayjob_redis_round_trip_seconds", "histogram", "Round trips of the pools' exchanges with Redis."
    )
    page.histogram("dayjob_redis_round_trip_seconds", durations.sums.get(("trip", ""), {}))
    page.one("dayjob_scrape_seconds", "How long the console took to read these figures from Redis.", took)
    page.one("dayjob_redis_time_seconds", "The time of the server's clock.", scrape.now)
    return "\n".join([*page.lines, ""])


def _queues(page: _Page, scrape: Scrape) -> None:
    queues = scrape.queues.queues
    families = (
        ("dayjob_queue_size", "Waiting jobs of the queue.", lambda view: view.queue.size),
        (
            "dayjob_queue_oldest_seconds",
            "How long its oldest job has waited.",
            lambda view: view.queue.age or 0.0,
        ),
        ("dayjob_queue_running", "Running attempts, as the pools report them.", lambda view: view.running),
        ("dayjob_queue_workers", "Workers that can run its jobs.", lambda view: view.workers),
        ("dayjob_queue_paused", "1 while it is paused.", lambda view: int(view.queue.paused)),
    )
    for name, words, value in families:
        page.family(name, "gauge", words)
        for view in queues:
            page.sample(name, value(view), queue=view.queue.name)
    limited = [view.queue for view in queues if view.queue.limit is not None]
    page.family("dayjob_queue_limit", "gauge", "How many of its jobs may run at once, if there is a limit.")
    for queue in limited:
        page.sample("dayjob_queue_limit", queue.limit or 0, queue=queue.name)
    page.family("dayjob_queue_limit_used", "gauge", "Attempts that count against its limit, if there is one.")
    for queue in limited:
        page.sample("dayjob_queue_limit_used", queue.held, queue=queue.name)


def _limits(page: _Page, scrape: Scrape) -> None:
    families: tuple[tuple[str, str, Callable[[LimitView], float]], ...] = (
        ("dayjob_limit_used", "Units of a rate, or starts of a window, that are used.", lambda one: one.used),
        (
            "dayjob_limit_waiting",
            "Jobs that wait while the limit lets none start.",
            lambda one: one.waiting if one.wait > 0 else 0,
        ),
        ("dayjob_limit_held", "1 while the limit is held.", lambda one: int(one.held_for > 0)),
        (
            "dayjob_limit_delay_seconds",
            "About how long a job enqueued now waits for the limit.",
            lambda one: one.delay,
        ),
        (
            "dayjob_limit_keys_held_back",
            "Keys with jobs that must wait, if the limit counts by key.",
            lambda one: one.keys_held_back,
        ),
    )
    for name, words, value in families:
        page.family(name, "gauge", words)
        for view in scrape.limits:
            page.sample(name, value(view), limit=view.name)
    page.family("dayjob_limit_most", "gauge", "How many units, or starts, may be used, unless it is lifted.")
    for view in scrape.limits:
        if view.most is not None:
            page.sample("dayjob_limit_most", view.most, limit=view.name)


def _sets(page: _Page, scrape: Scrape) -> None:
    page.family("dayjob_stored_jobs", "gauge", "Jobs that are not in a queue, by state.")
    for state in ("scheduled", "retry", "dead", "done", "broken"):
        page.sample("dayjob_stored_jobs", max(0, getattr(scrape.sizes, state)), state=state)


def _batches(page: _Page, scrape: Scrape) -> None:
    states = [one.state for one in scrape.batches]
    page.family("dayjob_batches", "gauge", "The newest 100 batches, by state.")
    for state in get_args(BatchState):
        page.sample("dayjob_batches", states.count(state), state=state)
    going = [one for one in scrape.batches if one.state in ("open", "running")]
    page.one(
        "dayjob_batch_members_left", "Members of these that have not ended.", sum(one.left for one in going)
    )
    oldest = max((scrape.now - one.created_at for one in going), default=0.0)
    page.one("dayjob_batch_oldest_seconds", "The age of the oldest of these that has not ended.", oldest)


def _workflows(page: _Page, scrape: Scrape) -> None:
    states = [one.state for one in scrape.workflows]
    page.family("dayjob_workflows", "gauge", "The newest 100 workflows, by state.")
    for state in get_args(WorkflowState):
        page.sample("dayjob_workflows", states.count(state), state=state)
    going = [one for one in scrape.workflows if one.state == "running"]
    page.one(
        "dayjob_workflow_nodes_left",
        "Nodes of the running ones that have not ended.",
        sum(one.left for one in going),
    )
    oldest = max((scrape.now - one.created_at for one in going), default=0.0)
    page.one("dayjob_workflow_oldest_seconds", "The age of the oldest of the running ones.", oldest)


def _pools(page: _Page, scrape: Scrape) -> None:
    live = [pool for pool in scrape.pools if pool.lease > 0]
    statuses = [pool.status for pool in live if pool.status is not None]
    page.one("dayjob_pools", "Live worker pools.", len(live))
    page.one(
        "dayjob_pools_quiet",
        "Worker pools that have stopped fetching.",
        sum(status.quiet for status in statuses),
    )
    page.one("dayjob_workers", "Workers of all pools.", sum(status.concurrency for status in statuses))
    page.one(
        "dayjob_workers_busy",
        "Workers that are running a job.",
        sum(sum(status.running.values()) for status in statuses),
    )
    page.one(
        "dayjob_workers_stuck",
        "Workers whose job passed its timeout and does not end.",
        sum(status.stuck for status in statuses),
    )
    page.one(
        "dayjob_pools_memory_bytes", "Resident memory of all pools.", sum(status.rss for status in statuses)
    )


def _totals(page: _Page, scrape: Scrape) -> None:
    page.family("dayjob_jobs_total", "counter", "Exact all-time totals, by counter and job.")
    for counter, by_name in sorted(scrape.totals.items()):
        for job, number in sorted(by_name.items()):
            page.sample("dayjob_jobs_total", number, counter=counter, job=job)


async def metrics(request: Request) -> Response:
    """GET /metrics."""
    console: WebConsole = request.app.state.console
    began = time.perf_counter()
    scrape = await console.admin.scrape(since=console.durations.since)
    took = time.perf_counter() - began
    console.durations.add(scrape.minutes)
    return Response(text(scrape, console.durations, console.admin.namespace, took), media_type=TEXT)


def routes() -> list[Route]:
    """The address that Prometheus scrapes."""
    return [Route("/metrics", metrics)]
