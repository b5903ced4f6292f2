"""The marks of charts: deploys, deaths of pools, pauses and restarts of Redis, from the timeline."""

from __future__ import annotations

from dayjob.web.charts import Mark
from dayjob.web.console import WebConsole
from dayjob.web.pages.shell import recent

#: Seconds for which all charts share one read of the marks.
FRESH_SECONDS = 2.0
#: The end of a span that has no end.
FOREVER = 1e12
_BAD = ("died", "redis")


async def marks(console: WebConsole, name: str = "") -> tuple[Mark, ...]:
    """The newest events that charts mark. For the charts of one job name, without the pauses of others."""
    found = await recent(console, "marks", FRESH_SECONDS, lambda: console.admin.marks_for(0.0, FOREVER))
    return tuple(
        Mark(one.at, one.text, one.kind in _BAD)
        for one in found
        if not name or one.kind != "pause" or one.name == name
    )
