"""Pages of what Redis keeps by the time of its creation, such as batches and workflows: the newest first, filtered, or sorted. Reads only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dayjob.admin.sorting import SortTable
from dayjob.store.steps import Steps

#: How many are compared where a page is sorted or filtered, and how many one read covers.
MAX_SORTED = 1000
AT_ONCE = 100

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class NewestPage(Generic[V]):
    """Some of them, in order."""

    rows: tuple[V, ...]
    #: Pass it as `offset` for the next page; 0 on the last page.
    next: int
    #: How many were compared for a sort or a filter; 0 where it is the order of all.
    sorted_among: int


def newest(
    total: int,
    read: Callable[[int, int], Steps[list[V]]],
    table: SortTable[V],
    *,
    offset: int,
    size: int,
    sort: str,
    keep: Callable[[V], bool] | None = None,
) -> Steps[NewestPage[V]]:
    """A page of `total`, of which `read` brings some by their place and number, without those that are gone.

    One that is sorted by another column than the usual, or of which only some are kept, is made from the newest 1,000.
    """
    offset, size = max(0, offset), max(1, min(size, AT_ONCE))
    found: list[V] = []
    if keep is None and table.read(sort) == table.read(""):
        # Those that are gone leave gaps, so that a page may need several reads.
        at = offset
        while at < min(total, offset + MAX_SORTED) and len(found) < size:
            some = size - len(found)
            found += yield from read(at, some)
            at += some
        return NewestPage(tuple(found), at if at < total else 0, 0)
    for first in range(0, min(total, MAX_SORTED), AT_ONCE):
        found += yield from read(first, AT_ONCE)
    compared = len(found) if total > MAX_SORTED else 0
    if keep is not None:
        found = [one for one in found if keep(one)]
    ordered = table.sorted(found, sort)[offset : offset + size]
    following = offset + size if offset + size < len(found) else 0
    return NewestPage(tuple(ordered), following, compared)
