"""Order: how a table of a page is sorted, and the links in its heads that sort it otherwise. `?sort=-waiting` in the address."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from dayjob.admin.sorting import SortTable
from dayjob.web.render import address

T = TypeVar("T")

#: Parameters that name a position in the list, which another order does not have.
_POSITIONS = ("after", "offset")


@dataclass(frozen=True, slots=True)
class Order:
    """The sort of one table of a page, for its templates."""

    request: Request
    table: SortTable[Any]
    sort: str
    #: The parameter of the address that has it. Each table of a page has its own.
    parameter: str = "sort"

    @classmethod
    def of(cls, request: Request, table: SortTable[Any], parameter: str = "sort") -> Order:
        """The order that the address asks for. Raises BadOption for a column that does not exist."""
        sort = request.query_params.get(parameter, "")
        table.read(sort)
        return cls(request, table, sort, parameter)

    @property
    def other(self) -> str:
        """The sort for links to other pages of the list; "" for the usual one."""
        return "" if self.table.read(self.sort) == self.table.read("") else self.sort

    @property
    def place(self) -> str:
        """The element to which a link in a head leads: the table itself if it is one of several; "" if it is the only one."""
        return "" if self.parameter == "sort" else f"by-{self.parameter}"

    @property
    def hint(self) -> str:
        """What a link in a head does, where that is not plain to see."""
        return ""

    def link(self, column: str) -> str:
        """The address of this page, sorted by a column: in its usual direction first, then in the other one."""
        left_out = (self.parameter, *(() if self.place else _POSITIONS))
        asked = {key: value for key, value in self.request.query_params.items() if key not in left_out}
        path = self.request.url.path.removeprefix(self.request.scope.get("root_path", ""))
        asked[self.parameter] = self.table.click(column, self.sort)
        return address(self.request, path, **asked) + (f"#{self.place}" if self.place else "")

    def direction(self, column: str) -> str:
        """The value of aria-sort for the head of a column."""
        here, falling = self.table.read(self.sort)
        return "none" if here != column else "descending" if falling else "ascending"

    def first(self, rows: Iterable[T], most: int | None = None) -> list[T]:
        """The first rows in this order. All the rows are compared, not only those that are shown."""
        return self.table.sorted(rows, self.sort)[:most]


@dataclass(frozen=True, slots=True)
class FullList:
    """The heads of an excerpt: each leads to the page with all the rows, sorted by its column."""

    request: Request
    table: SortTable[Any]
    #: The page with all the rows, and its parameters.
    path: str
    asked: dict[str, str]
    #: What all the rows are, such as "attempts of this pool".
    rows: str

    @classmethod
    def at(cls, request: Request, table: SortTable[Any], path: str, rows: str, /, **asked: str) -> FullList:
        return cls(request, table, path, asked, rows)

    @property
    def place(self) -> str:
        return ""

    @property
    def hint(self) -> str:
        """What a link in a head does."""
        return f"All {self.rows}, sorted by this column"

    def link(self, column: str) -> str:
        """The address of all the rows, sorted by a column in its usual direction."""
        usual = column if column in self.table.rising else f"-{column}"
        return address(self.request, self.path, **self.asked, sort=usual)

    def direction(self, column: str) -> str:  # noqa: ARG002 - as in Order; no column of an excerpt sorts it here
        return "none"
