"""Sorting: the columns of each table, the order of their rows, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dayjob.admin import sorting
from dayjob.admin.sorting import SortTable
from dayjob.errors import BadOption

TABLES = [
    *(one for one in vars(sorting).values() if isinstance(one, SortTable)),
    *sorting.JOBS.values(),
]


@dataclass(frozen=True)
class Row:
    name: str
    number: float | None = None
    source: str | int | None = None


ROWS: SortTable[Row] = SortTable(
    "rows",
    {"name": lambda row: row.name, "number": lambda row: row.number, "source": lambda row: row.source},
    "name",
)


def names(rows: list[Row]) -> str:
    return "".join(row.name for row in rows)


def test_rows_are_sorted_in_either_direction_and_by_the_default():
    rows = [Row("b", 2), Row("a", 3), Row("c", 1)]
    assert names(ROWS.sorted(rows)) == "abc"
    assert names(ROWS.sorted(rows, "-name")) == "cba"
    assert names(ROWS.sorted(rows, "number")) == "cba"
    assert names(ROWS.sorted(rows, "-number")) == "abc"


def test_rows_without_a_value_come_last_in_either_direction():
    rows = [Row("a"), Row("b", 0), Row("c", 5)]
    assert names(ROWS.sorted(rows, "number")) == "bca"
    assert names(ROWS.sorted(rows, "-number")) == "cba"


def test_equal_rows_stay_as_they_came():
    rows = [Row("c", 1), Row("a", 1), Row("b", 1)]
    assert names(ROWS.sorted(rows, "number")) == names(ROWS.sorted(rows, "-number")) == "cab"


def test_numbers_come_before_texts_and_case_does_not_matter():
    rows = [Row("a", source="Zoe"), Row("b", source=7), Row("c", source="ada")]
    assert names(ROWS.sorted(rows, "source")) == "bca"


@pytest.mark.parametrize("sort", ["nmae", "-nmae"])
def test_an_unknown_column_is_refused_with_a_suggestion_and_those_that_exist(sort):
    with pytest.raises(BadOption) as caught:
        ROWS.sorted([], sort)
    text = str(caught.value)
    assert "rows cannot be sorted by 'nmae'. Did you mean 'name'?" in text
    assert "There are: name, number, source." in text


@pytest.mark.parametrize("sort", ["-", "--name", "name,number", "\x1b[2J"])
def test_what_is_no_column_is_refused(sort):
    with pytest.raises(BadOption, match="cannot be sorted by"):
        ROWS.sorted([], sort)


def test_a_click_sorts_in_the_usual_direction_first_and_then_in_the_other():
    assert ROWS.click("number", "") == "-number"
    assert ROWS.click("number", "-number") == "number"
    assert ROWS.click("number", "number") == "-number"
    assert ROWS.click("name", "number") == "name"
    assert ROWS.click("name", "") == "-name", "the default is sorted by name already"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.rows)
def test_the_default_exists_and_the_next_column_leads_through_all(table):
    assert len(TABLES) > 12
    assert set(table.rising) <= set(table.columns)
    seen, sort = set(), ""
    for _ in table.columns:
        seen.add(table.read(sort)[0])
        sort = table.next(sort)
    assert seen == set(table.columns)
