"""The timeline: what the system and its operators did, newest first. The filter is in the address."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.timeline_views import KINDS, TimelineEvent
from dayjob.admin.timeline_words import became
from dayjob.web.order import Order
from dayjob.web.pages.shell import Values, page, whole
from dayjob.web.pages.subjects import Link, link_of

SIZE = 100
#: Spans that the page offers, in hours; 0 is all that is kept.
_HOURS = ((0, "Any time"), (1, "Last hour"), (24, "Last 24 hours"), (168, "Last 7 days"))
_KINDS = {
    "started": "Pools started", "stopped": "Pools stopped", "died": "Pools died", "leader": "Leader changed",
    "deploy": "Deploys", "tick": "Ticks", "limit": "Limits", "pause": "Pauses", "starved": "Starving queues",
    "redis": "Redis", "action": "Actions of operators",
}  # fmt: skip
_TONES = {"died": "err", "starved": "warn", "pause": "warn", "limit": "warn", "redis": "err", "deploy": "run"}


@page("timeline.html", "/timeline", "Timeline")
async def timeline(request: Request, admin: AsyncAdmin) -> Values:
    """Events, filtered by kind, pool, name, actor and time."""
    asked = request.query_params
    wanted = {key: asked.get(key, "")[:300] for key in ("kind", "pool", "name", "actor")}
    hours = whole(request, "hours", most=24 * 90)
    order = Order.of(request, sorting.TIMELINE)
    offset = whole(request, "offset", most=10_000)
    since, until = _moment(asked.get("since", "")), _moment(asked.get("until", ""))
    if hours and since is None:
        since = (await admin.events(kinds=["redis"], size=1)).now - hours * 3600
    found = await admin.events(
        kinds=[wanted["kind"]] if wanted["kind"] in KINDS else [], pool=wanted["pool"], name=wanted["name"],
        actor=wanted["actor"], since=since, until=until, offset=offset, size=SIZE, sort=order.sort,
    )  # fmt: skip
    kept = {key: value for key, value in wanted.items() if value}
    kept |= {key: asked[key] for key in ("hours", "since", "until", "sort") if asked.get(key)}
    return {
        "events": found.events, "more": found.more, "wanted": wanted, "kept": kept, "hours": hours, "offset": offset,
        "size": SIZE, "kinds": _KINDS, "spans": _HOURS, "tones": _TONES, "became": became, "links": _links, "now": found.now,
        "order": order,
    }  # fmt: skip


def _moment(text: str) -> float | None:
    try:
        found = float(text[:40])
    except ValueError:
        return None
    return found if 0 <= found < 1e11 else None


def _links(event: TimelineEvent) -> list[Link]:
    """Where an event leads on."""
    found: list[Link] = []
    if event.pool:
        label = f"{event.host}/{event.pid}" if event.host else event.pool
        found.append((label, "/pool", {"id": event.pool}))
    if event.name:
        found.append((event.name, "/queue", {"name": event.name}))
    if event.schedule:
        found.append((event.schedule, "/schedule", {"name": event.schedule}))
    if (link := link_of(event.subject)) is not None:
        found.append(link)
    found += [(name, "/queue", {"name": name}) for name in (*event.added, *event.changed)[:20]]
    return found
