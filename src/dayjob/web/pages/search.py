"""Search: one text over jobs, queues, pools, schedules, sources and errors."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse

from dayjob.admin.client import AsyncAdmin
from dayjob.admin.filters import Filter, FilterCondition
from dayjob.web.pages.shell import Values, page
from dayjob.web.places import LISTS, link_of, place_of
from dayjob.web.render import address

#: The heading of each kind of hit, in the order of the page.
KINDS = {
    "queue": "Queues", "job": "Jobs", "error": "Errors", "source": "Sources", "schedule": "Schedules", "pool": "Pools",
}  # fmt: skip


@page("search.html", "", "Search")
async def search(request: Request, admin: AsyncAdmin) -> Values:
    """What `q` may mean. The whole id of a job opens that job."""
    text = request.query_params.get("q", "").strip()
    found = await admin.search(text)
    exact = next((hit for hit in found.hits if hit.kind == "job" and hit.id == text), None)
    if exact is not None:
        path, query = place_of(exact)
        return {"response": RedirectResponse(address(request, path, **query), 303)}
    groups = [
        (
            title,
            [
                (hit, request.scope.get("root_path", "") + link_of(hit))
                for hit in found.hits
                if hit.kind == kind
            ],
        )
        for kind, title in KINDS.items()
    ]
    word = str(Filter((FilterCondition("text", "~", text, text),))) if text else ""
    parts = [(part, *LISTS[part.state]) for part in found.parts if part.total]
    return {
        "q": text, "found": found, "groups": [one for one in groups if one[1]], "parts": parts, "where": word,
    }  # fmt: skip
