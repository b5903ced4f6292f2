"""View: how a tab, or what opens from one, is read, its actions, and what enter opens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from dayjob.admin.client import AsyncAdmin
from dayjob.admin.sorting import SortTable
from dayjob.admin.views import State
from dayjob.tui.actions import Action
from dayjob.tui.sheet import Sheet

#: How many rows one read brings.
SIZE = 100


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The parameters of a read: filter, cursor, number of hours, and sort."""

    where: str = ""
    after: str = ""
    hours: int = 1
    sort: str = ""

    @property
    def place(self) -> int:
        """How many rows were on the pages before, in lists whose cursor is a number."""
        return int(self.after) if self.after.isdecimal() else 0


Read = Callable[[AsyncAdmin, ReadOptions], Awaitable[Sheet]]
Open = Callable[[Any], "View | None"]


def nowhere(_subject: Any) -> View | None:
    """For views in which enter does nothing."""
    return None


@dataclass(frozen=True, slots=True)
class View:
    """One view."""

    title: str
    read: Read
    actions: tuple[Action, ...] = ()
    opens: Open = nowhere
    #: What its rows can be filtered by; empty if it has no filter.
    conditions: tuple[str, ...] = ()
    #: The state of the jobs it lists, if actions on all matching jobs are possible.
    state: State | None = None
    #: Whether rows can be marked.
    marks: bool = False
    #: Whether it shows a number of hours.
    spans: bool = False
    #: The columns by which it can be sorted.
    columns: SortTable[Any] | None = None
    #: A key that opens a related view, its label, and that view.
    other: tuple[str, str, Open] | None = None
