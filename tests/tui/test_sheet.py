"""How sheets fit a width: pure."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from dayjob.tui.sheet import Column, Layout, Row, Sheet, bar, clipped, fitted, flowing, spark, wrapped

COLUMNS = (Column("NAME"), Column("SIZE", right=True, rank=1), Column("ID", rank=2), Column("WHAT", most=100))


def test_what_fits_stays_as_it_is_and_the_last_column_takes_the_rest():
    assert fitted(COLUMNS, [5, 4, 6, 10], 40) == [(0, 5), (1, 4), (2, 6), (3, 19)]


def test_columns_go_by_their_rank_the_highest_first():
    assert [i for i, _ in fitted(COLUMNS, [5, 4, 6, 10], 28)] == [0, 1, 3]
    assert [i for i, _ in fitted(COLUMNS, [5, 4, 6, 10], 18)] == [0, 3]


def test_what_must_stay_is_made_narrower_the_widest_first():
    assert fitted(COLUMNS, [5, 4, 6, 60], 20) == [(0, 5), (3, 13)]
    assert all(width >= 1 for _, width in fitted(COLUMNS, [5, 4, 6, 60], 3))


@pytest.mark.parametrize("room", range(-3, 60))
def test_no_room_is_too_small_and_nothing_is_wider_than_the_room(room):
    found = fitted(COLUMNS, [5, 4, 6, 10], room)
    assert found
    if room >= 4:
        assert sum(width for _, width in found) + 2 * (len(found) - 1) <= room


def test_a_column_never_becomes_narrower_from_one_moment_to_the_next():
    layout = Layout()
    wide = Sheet(columns=(Column("A"), Column("B")), rows=(Row("1", ("long text", "x")),))
    narrow = Sheet(columns=wide.columns, rows=(Row("1", ("s", "x")),))
    assert layout.fit(wide, 40)[0] == layout.fit(narrow, 40)[0] == (0, 9)


def test_text_is_cut_by_what_it_takes_on_the_screen():
    assert clipped("abcdef", 4) == "abc…"
    assert clipped("ab", 4, right=True) == "  ab"
    assert clipped("日本語", 4) == "日 …"
    assert clipped("abc", 0) == ""


@pytest.mark.parametrize("text", ["one two three four", "x" * 30, "日本語日本語 word", "", "a  b"])
@pytest.mark.parametrize("width", [2, 5, 11])
def test_wrapped_lines_are_never_wider_and_lose_nothing_but_blanks(text, width):
    lines = wrapped(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_bars_show_the_newest_at_the_right_and_nothing_for_nothing():
    assert spark([0, 0, 4], 3) == "  █"
    assert spark([1, 2, 4, 8], 2)[-1] == "█"
    assert len(spark(list(range(100)), 30)) == 30
    assert spark([], 5) == spark([0, 0], 5) == ""
    assert (bar(0, 4), bar(0.5, 4), bar(7, 4)) == ("░░░░", "██░░", "████")


def test_columns_with_less_than_they_want_do_not_drive_others_away():
    columns = (Column("NAME"), Column("ID", rank=1), Column("ERROR", most=300, least=20))
    assert fitted(columns, [5, 6, 200], 40) == [(0, 5), (1, 6), (2, 25)]
    assert [i for i, _ in fitted(columns, [5, 6, 200], 30)] == [0, 2]


def test_pieces_flow_over_lines_and_keep_their_tone():
    lines = flowing([("Dead > mail  ", "bold"), ("it has moved on", "error")], 14)
    assert ["".join(text for text, _ in line) for line in lines] == ["Dead > mail  ", "it has moved", "on"]
    assert {tone for _, tone in lines[1]} == {"error"}
    assert flowing([("", "")], 10) == [(("", ""),)]
