"""Order: how a table of a page is sorted, and the links in its heads that sort it otherwise. `?sort=-waiting` in the address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from dayjob.admin.sorting import SortTable
from dayjob.web.render import address

#: Parameters that name a position in the list, which another order does not have.
_POSITIONS = ("after", "offset", "sort")


@dataclass(frozen=True, slots=True)
class Order:
    """The sort of one page, for its templates."""

    request: Request
    table: SortTable[Any]
    sort: str

    @classmethod
    def of(cls, request: Request, table: SortTable[Any]) -> Order:
        """The order that the address asks for. Raises BadOption for a column that does not exist."""
        sort = request.query_params.get("sort", "")
        table.read(sort)
        return cls(request, table, sort)

    @property
    def other(self) -> str:
        """The sort for links to other pages of the list; "" for the usual one."""
        return "" if self.table.read(self.sort) == self.table.read("") else self.sort

    def link(self, column: str) -> str:
        """The address of this page, sorted by a column: in its usual direction first, then in the other one."""
        asked = {key: value for key, value in self.request.query_params.items() if key not in _POSITIONS}
        path = self.request.url.path.removeprefix(self.request.scope.get("root_path", ""))
        return address(self.request, path, **asked, sort=self.table.click(column, self.sort))

    def direction(self, column: str) -> str:
        """The value of aria-sort for the head of a column."""
        here, falling = self.table.read(self.sort)
        return "none" if here != column else "descending" if falling else "ascending"
