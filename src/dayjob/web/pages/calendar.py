"""Calendar: what will run in the next hours."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.calendar import STEPS
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.views import Calendar
from dayjob.text import counted, span
from dayjob.web import charts
from dayjob.web.charts import Chart, Series
from dayjob.web.order import Order
from dayjob.web.pages.paging import part
from dayjob.web.pages.shell import Values, page, whole
from dayjob.web.render import address

#: How many jobs are listed, and how many names.
MAX_LISTED = 50
MAX_NAMES = 50


@page("calendar.html", "/calendar", "Calendar")
async def calendar(request: Request, admin: AsyncAdmin) -> Values:
    """The next `hours`; the list begins at `since`."""
    asked = whole(request, "hours", 1)
    hours = asked if asked in STEPS else 1
    since = whole(request, "since", most=10**12) or None
    order = Order.of(request, sorting.CALENDAR)
    found = await admin.calendar(hours, since=since, most=MAX_LISTED, sort=order.sort)
    names = Order.of(request, sorting.COMING_NAMES, "names")
    leads = partial(address, request, "/calendar", hours=hours)
    return {
        "found": found, "picture": drawn(found, lambda start, _: leads(since=int(start))), "since": since,
        "coming": sum(one.scheduled + one.retry + one.periodic for one in found.names), "names": part(request, names.first(found.names), MAX_NAMES, len(found.names)), "names_order": names, "spans": tuple(STEPS), "now": found.now,
        "order": order,
    }  # fmt: skip


def drawn(found: Calendar, to: charts.Leads) -> Chart:
    """How many jobs become due in each step, by where they come from."""
    series = (
        Series("scheduled", found.scheduled, 0),
        Series("retry", found.retry, 3),
        Series("periodic", found.periodic, 2),
    )
    total = sum(map(sum, (found.scheduled, found.retry, found.periodic)))
    ahead = "hour" if found.hours == 1 else f"{found.hours} h"
    title = f"Next {ahead}, in steps of {span(found.step)}"
    return charts.bars(title, found.starts, found.step, series, to=to, summary=counted(total, "job"))
