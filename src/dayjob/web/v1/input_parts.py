"""What the inputs of the API are made of: their base, parts of lists, and the order of a table."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dayjob.admin.sorting import SortTable

Size = Annotated[int, Meta(ge=1, le=500, description="The most entries to return.")]
Offset = Annotated[int, Meta(ge=0, lt=10_000, description="How many entries to skip.")]


def sort_by(rows: str, *tables: SortTable[Any]) -> Meta:
    """Describes a parameter that sorts a table, with the columns."""
    columns = dict.fromkeys(column for table in tables for column in table.columns)
    text = f"Sort {rows} by a column; a minus puts the greatest first."
    # The admin layer refuses other columns, with an error that names these.
    either = ["", *(f"{minus}{column}" for column in columns for minus in ("", "-"))]
    return Meta(description=text, extra_json_schema={"enum": either})


class Input(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of all inputs: a field that no input has is refused."""


class Slice(Input):
    """Part of a list."""

    offset: Offset = 0
    size: Size = 50
