"""Settings: the reader's preferences. The browser stores them; the server does not."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.version import __version__
from dayjob.web.pages.shell import Values, page

#: Key, label, default, and the choices.
_OPTIONS = (
    ("theme", "Theme", "", (("", "System"), ("light", "Light"), ("dark", "Dark"))),
    ("density", "Density", "", (("", "Comfortable"), ("compact", "Compact"))),
    ("times", "Times", "", (("", "How long ago"), ("absolute", "Date and time"))),
    ("zone", "Time zone", "", (("", "Local"), ("utc", "UTC"))),
    (
        "refresh",
        "Refresh",
        "2",
        (("1", "1 s"), ("2", "2 s"), ("5", "5 s"), ("15", "15 s"), ("off", "Never")),
    ),
)


@page("settings.html", "/settings", "Settings")
async def settings(request: Request, _admin: AsyncAdmin) -> Values:
    """The form, and facts about this console."""
    console = request.app.state.console
    return {"options": _OPTIONS, "version": __version__, "actor": console.actor_of(request)}
