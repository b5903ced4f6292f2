"""Paging: which rows of a table a page shows, and the links to its other rows. `?offset=100` in the address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.requests import Request

from dayjob.web.pages.shell import whole
from dayjob.web.render import address

T = TypeVar("T")

#: The farthest row that an address can ask for.
MAX_OFFSET = 10_000


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """Some rows of a table that is too long for one page."""

    rows: Sequence[T]
    #: How many rows come before them.
    offset: int
    #: How many rows there are; None if that is not known.
    total: int | None
    #: The addresses of the first rows and of the next ones; "" if there are none.
    first: str
    next: str


def last_row(request: Request, size: int) -> int:
    """How many rows must be read for the part that the address asks for."""
    return whole(request, "offset", most=MAX_OFFSET) + size


def part(request: Request, rows: Sequence[T], size: int, total: int | None) -> Part[T]:
    """The part of the rows that the address asks for; the first rows if it asks for those beyond the end.

    `rows` are all of them, or the first ones with one more than the page shows if their `total` is not known.
    """
    offset = last_row(request, size) - size
    if offset >= len(rows):
        offset = 0
    end = offset + size
    more = end < (len(rows) if total is None else total)
    return Part(
        rows[offset:end], offset, total, _link(request, 0) if offset else "", _link(request, end) if more else ""
    )  # fmt: skip


def _link(request: Request, offset: int) -> str:
    kept = {key: value for key, value in request.query_params.items() if key != "offset"}
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return address(request, path, **kept, offset=offset or "")
