"""History: attempts that ended. Sources: what each source used, and one page for each source."""

from __future__ import annotations

import math
import shlex
from typing import Any

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.records import ENDINGS, HistoryCounts
from dayjob.web.charts import Chart
from dayjob.web.order import FullList, Order
from dayjob.web.pages import drawings
from dayjob.web.pages.marks import marks
from dayjob.web.pages.paging import part
from dayjob.web.pages.shell import Values, failure, look, page
from dayjob.web.render import address

#: How many attempts a page has, how many bars its chart, and how many sources a page has.
SIZE = 50
STEPS = 60
MAX_SOURCES = 100
#: The spans that a page offers: words and seconds.
SPANS = (("10 min", 600), ("1 h", 3600), ("6 h", 21_600), ("24 h", 86_400))
_TEXTS = ("name", "outcome", "source", "pool", "schedule")
DAY_SECONDS = 86_400


@page("history.html", "/history", "History")
async def history(request: Request, admin: AsyncAdmin) -> Values:
    """Attempts that ended in a span, with filters from the query."""
    query = request.query_params
    since, until = _moment(query.get("since", "")), _moment(query.get("until", ""))
    asked = {name: query.get(name, "") for name in _TEXTS}
    wanted: dict[str, Any] = {name: value or None for name, value in asked.items()}
    order = Order.of(request, sorting.HISTORY)
    last = next((seconds for words, seconds in SPANS if query.get("last") == words), None)
    begin = since
    if since is None and last is not None:
        begin = (until if until is not None else (await look(request.app.state.console)).now) - last
    found = await admin.history(
        **wanted, since=begin, until=until, sort=order.sort, limit=SIZE, after=query.get("after", "")
    )
    kept: dict[str, Any] = asked | {
        "since": since, "until": until, "last": query.get("last", "") if last else "", "sort": order.other,
    }  # fmt: skip

    def link(**changes: Any) -> str:
        """The address of this page with some changes; it begins at the first attempt."""
        return address(request, "/history", **(kept | changes))

    return {
        "found": found, "asked": asked, "order": order, "kept": kept, "link": link, "spans": [words for words, _ in SPANS],
        "since": since, "until": until, "endings": ("failed", *ENDINGS), "now": found.now,
        "picture": await _picture(request, admin, wanted, begin, until, last or DAY_SECONDS),
        "names": await admin.queue_names(), "after": query.get("after", ""),
    }  # fmt: skip


async def _picture(
    request: Request, admin: AsyncAdmin, wanted: dict[str, Any], since: float | None, until: float | None, last: int
) -> Chart:  # fmt: skip
    """Attempts over time. The figures of each minute count all of them, by name; other filters count records."""
    asked = {name: value or "" for name, value in wanted.items()}
    filtered = any(value for name, value in asked.items() if name != "name")
    if filtered or until is not None or request.query_params.get("since"):
        counts = await admin.history_counts(**wanted, since=since, until=until, steps=STEPS)
        return await _chart(request, counts, asked)
    hours = 1 if last <= 3600 else 24
    leads = drawings.to_history(request, **asked)
    marked = await marks(request.app.state.console, asked["name"])
    if asked["name"]:
        found = await admin.metrics(hours, name=asked["name"])
        only = found.jobs[0] if found.jobs else None
        none = (0,) * len(found.starts)
        starts, step, ended, failed = (
            found.starts, found.step, only.series if only else none, only.fails if only else none,
        )  # fmt: skip
    else:
        flow = await admin.throughput(hours)
        starts, step, ended, failed = flow.starts, flow.step, flow.ended, flow.failed
    cut = -max(1, last // step)
    return drawings.attempts(
        "Attempts that ended", starts[cut:], step, ended[cut:], failed[cut:], marked, leads
    )  # fmt: skip


async def _chart(request: Request, counts: HistoryCounts, asked: dict[str, str]) -> Chart:
    """Attempts in each step, as far as records were counted; a bar leads to the attempts of that step."""
    starts = [int(start) for start in counts.starts]
    # A bar leads to whole seconds, which must include the last moment of its step.
    step = max(1, math.ceil(counts.step + counts.starts[0] % 1))
    leads = drawings.to_history(request, **asked)
    title = "Attempts that ended"
    if counts.partial:
        title = f"{title}: the newest {counts.searched:,} records"
    marked = await marks(request.app.state.console, asked.get("name", ""))
    return drawings.attempts(title, starts, step, counts.ended, counts.failed, marked, leads)


def _moment(text: str) -> float | None:
    """A moment of the query, in seconds since the epoch; None if there is none."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 < found < 1e11 else None


@page("sources.html", "/sources", "Sources")
async def sources(request: Request, admin: AsyncAdmin) -> Values:
    """What each source used in a span."""
    words = request.query_params.get("last", "24 h")
    seconds = dict(SPANS).get(words, DAY_SECONDS)
    order = Order.of(request, sorting.SOURCES)
    now = (await look(request.app.state.console)).now
    found = await admin.sources(since=now - seconds, sort=order.sort)
    rows = part(request, found.sources, MAX_SOURCES, len(found.sources))
    return {
        "found": found,
        "rows": rows,
        "spans": [one for one, _ in SPANS],
        "last": words,
        "now": now,
        "order": order,
    }


@page("source.html", "/sources", "Source")
async def source(request: Request, admin: AsyncAdmin) -> Values:
    """One source: what it used, what it has waiting, in retry and dead, and its last attempts."""
    name = request.query_params.get("source", "")
    if not name:
        sentence, hint = "No source is named.", "The address needs a source: /source?source=..."
        return {"response": await failure(request, 404, sentence, hint)}
    found = await admin.source(name)
    return {
        "source": name, "found": found, "used": found.used, "now": found.now, "where": f"source={shlex.quote(name)}",
        "picture": await _chart(request, found.counts, {"source": name}),
        "recent_order": FullList.at(request, sorting.HISTORY, "/history", "attempts of this source", source=name),
        "failed_order": FullList.at(request, sorting.HISTORY, "/history", "failed attempts of this source", source=name, outcome="failed"),
    }  # fmt: skip
