"""The search over the API."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dayjob.admin.views import SearchedPart, SearchHit
from dayjob.web.places import link_of
from dayjob.web.v1.table import Call, Endpoint


class SearchInput(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What to search for."""

    q: Annotated[
        str,
        Meta(max_length=500, description="The beginning of an ID, a part of a name, an error, an argument."),
    ]


class LinkedHit(msgspec.Struct, frozen=True):
    """One thing that the text may mean."""

    hit: SearchHit
    #: Its page, below the root of the console.
    link: str


class SearchAnswer(msgspec.Struct, frozen=True):
    """What a text may mean, and how many jobs of each state were searched."""

    text: str
    hits: list[LinkedHit]
    parts: list[SearchedPart]
    #: Whether every job was searched.
    complete: bool


async def _search(call: Call[SearchInput]) -> Any:
    found = await call.admin.search(call.sent.q)
    hits = [LinkedHit(hit, link_of(hit)) for hit in found.hits]
    return SearchAnswer(found.text, hits, list(found.parts), found.complete)


ENDPOINTS = (
    Endpoint("GET", "/search", "console", "Search jobs, queues, pools, schedules, sources and errors for a text.", _search, SearchAnswer, SearchInput),
)  # fmt: skip
