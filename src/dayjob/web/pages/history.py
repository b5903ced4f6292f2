"""History: attempts that ended. Sources: what each source used, and one page for each source."""

from __future__ import annotations

import math
import shlex
from typing import Any

from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.admin.history import Order
from dayjob.admin.records import ENDINGS, HistoryCounts
from dayjob.web.charts import Chart
from dayjob.web.pages import drawings
from dayjob.web.pages.shell import Values, failure, page
from dayjob.web.render import address

#: How many attempts a page has, and how many bars its chart.
SIZE = 50
STEPS = 60
#: How many jobs of each state are searched for those of a source.
MAX_COUNTED = 3000
#: The spans that a page offers: words and seconds.
SPANS = (("10 min", 600), ("1 h", 3600), ("6 h", 21_600), ("24 h", 86_400))
_TEXTS = ("name", "outcome", "source", "pool")


@page("history.html", "/history", "History")
async def history(request: Request, admin: AsyncAdmin) -> Values:
    """Attempts that ended in a span, with filters from the query; `order` is newest or slowest."""
    query = request.query_params
    since, until = _moment(query.get("since", "")), _moment(query.get("until", ""))
    asked = {name: query.get(name, "") for name in _TEXTS}
    order: Order = "slowest" if query.get("order") == "slowest" else "newest"
    last = next((seconds for words, seconds in SPANS if query.get("last") == words), None)
    counts = await _counts(admin, asked, since, until, last)
    begin = since if since is not None or last is None else counts.starts[0]
    found = await admin.history(
        asked["name"] or None, since=begin, until=until, outcome=asked["outcome"] or None, source=asked["source"] or None,
        pool=asked["pool"] or None, order=order, limit=SIZE, after=query.get("after", ""),
    )  # fmt: skip
    kept: dict[str, Any] = asked | {
        "since": since, "until": until, "last": query.get("last", "") if last else "", "order": query.get("order", ""),
    }  # fmt: skip

    def link(**changes: Any) -> str:
        """The address of this page with some changes; it begins at the first attempt."""
        return address(request, "/history", **(kept | changes))

    return {
        "found": found, "asked": asked, "order": order, "kept": kept, "link": link, "spans": [words for words, _ in SPANS],
        "since": since, "until": until, "endings": ("failed", *ENDINGS), "now": found.now,
        "picture": _chart(request, counts, asked), "names": await admin.queue_names(), "after": query.get("after", ""),
    }  # fmt: skip


async def _counts(
    admin: AsyncAdmin, asked: dict[str, str], since: float | None, until: float | None, last: int | None
) -> HistoryCounts:
    """Counts of the span: the one that is asked for, else the last 24 hours."""
    if since is None and last is not None:
        end = until if until is not None else (await admin.verdict()).now
        since = end - last
    return await admin.history_counts(
        asked["name"] or None, since=since, until=until, outcome=asked["outcome"] or None, source=asked["source"] or None,
        pool=asked["pool"] or None, steps=STEPS,
    )  # fmt: skip


def _chart(request: Request, counts: HistoryCounts, asked: dict[str, str]) -> Chart:
    """Attempts in each step; a bar leads to the attempts of that step."""
    starts = [int(start) for start in counts.starts]
    step = max(1, math.ceil(counts.step))
    leads = drawings.to_history(request, **asked)
    return drawings.attempts("Attempts that ended", starts, step, counts.ended, counts.failed, to=leads)


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
    seconds = dict(SPANS).get(words, 86_400)
    now = (await admin.verdict()).now
    found = await admin.sources(since=now - seconds)
    return {"found": found, "spans": [one for one, _ in SPANS], "last": words, "now": now}


@page("source.html", "/sources", "Source")
async def source(request: Request, admin: AsyncAdmin) -> Values:
    """One source: what it used, what it has waiting, in retry and dead, and its last attempts."""
    name = request.query_params.get("source", "")
    if not name:
        sentence, hint = "No source is named.", "The address needs a source: /source?source=..."
        return {"response": await failure(request, 404, sentence, hint)}
    now = (await admin.verdict()).now
    used = await admin.sources(since=now - 86_400, source=name)
    where = f"source={shlex.quote(name)}"
    counts = await admin.history_counts(source=name, since=now - 86_400, steps=STEPS)
    return {
        "source": name, "used": used.sources[0] if used.sources else None, "partial": used.partial, "now": now,
        "states": [(state, await admin.count(state, where=where, most=MAX_COUNTED)) for state in ("waiting", "scheduled", "retry", "dead")],
        "where": where, "recent": await admin.history(source=name, limit=20),
        "failed": await admin.history(source=name, outcome="failed", limit=20),
        "picture": _chart(request, counts, {"source": name}),
    }  # fmt: skip
