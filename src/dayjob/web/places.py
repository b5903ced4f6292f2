"""Places: the page of the console that is about something that was found. Pure."""

from __future__ import annotations

import shlex
from typing import Any
from urllib.parse import urlencode

from dayjob.admin.views import SearchHit, State

#: The list of jobs in a state, and what its address needs.
LISTS: dict[State, tuple[str, dict[str, str]]] = {
    "waiting": ("/jobs", {"state": "waiting"}), "running": ("/jobs", {"state": "running"}), "scheduled": ("/scheduled_jobs", {}),
    "retry": ("/retry_jobs", {}), "dead": ("/dead_jobs", {}), "done": ("/done_jobs", {}),
}  # fmt: skip


def place_of(hit: SearchHit) -> tuple[str, dict[str, Any]]:
    """The page about a hit, and its query."""
    match hit.kind:
        case "job":
            return "/job", {"id": hit.id, "name": hit.name}
        case "queue":
            return "/queue", {"name": hit.name}
        case "pool":
            return "/pool", {"id": hit.name}
        case "schedule":
            return "/schedule", {"name": hit.name}
        case "source":
            return "/jobs", {"state": "waiting", "where": f"source={shlex.quote(hit.name)}"}
        case "error":
            return "/failure", {"name": hit.name, "kind": hit.text}


def link_of(hit: SearchHit) -> str:
    """The same as an address below the root of the console."""
    path, query = place_of(hit)
    text = urlencode({key: value for key, value in query.items() if value}, errors="replace")
    return path + (f"?{text}" if text else "")
