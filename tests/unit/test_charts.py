"""Charts: where labels are, what bars and cells are worth, and what the table has."""

from __future__ import annotations

import re

import pytest

from dayjob.admin.views import Histogram
from dayjob.web import charts
from dayjob.web.charts import Mark, Series, Span, durations, scale
from dayjob.web.charts.gantt import lanes
from dayjob.web.charts.lines import runs_of


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0, (0, 1)), (1, (0, 1)), (3, (0, 1, 2, 3)), (7, (0, 2, 4, 6, 8)), (100, (0, 50, 100)), (101, (0, 50, 100, 150)),
        (2_345, (0, 1000, 2000, 3000)), (4_000, (0, 1000, 2000, 3000, 4000)),
    ],
)  # fmt: skip
def test_counts_have_round_whole_labels(most, ticks):
    assert scale.counts(most) == ticks


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0.3, (0, 0.1, 0.2, 0.3)), (45, (0, 15, 30, 45)), (200, (0, 60, 120, 180, 240)), (90_000, (0, 43_200, 86_400, 129_600)),
        (86_400 * 40, tuple(864_000 * n for n in range(5))),
    ],
)  # fmt: skip
def test_durations_have_round_labels(most, ticks):
    assert scale.durations(most) == pytest.approx(ticks)


def test_amounts_have_powers_of_two():
    assert scale.amounts(3 << 20) == (0, 1 << 20, 2 << 20, 3 << 20)
    assert scale.amounts(0) == (0, 1)


@pytest.mark.parametrize("most", [0, 1, 9, 10, 11, 99, 12_345, 10**9])
def test_an_axis_reaches_its_largest_value_and_has_few_labels(most):
    for ticks in (scale.counts(most), scale.durations(most), scale.amounts(most)):
        assert ticks[-1] >= most
        assert 2 <= len(ticks) <= scale.MAX_STEPS + 1


@pytest.mark.parametrize(
    ("length", "step", "kind"),
    [
        (60, 10, "second"), (3600, 600, "hour"), (86_400, 14_400, "hour"), (86_400 + 1500, 14_400, "hour"), (3 * 86_400, 43_200, "day"),
        (14 * 86_400, 172_800, "day"),
    ],
)  # fmt: skip
def test_times_are_round_and_have_the_day_where_there_are_several(length, step, kind):
    found, written = scale.times(1_700_000_000, 1_700_000_000 + length)
    assert written == kind
    assert all(at % step == 0 for at in found)
    assert 5 <= len(found) <= scale.MAX_TIMES


def test_a_moment_has_only_what_is_worth_writing():
    midnight = 1_700_006_400
    assert [scale.clock(midnight + n) for n in (0, 60, 61)] == ["15 Nov", "15 Nov, 00:01", "15 Nov, 00:01:01"]
    assert (scale.clock(midnight, "hour"), scale.clock(midnight, "second")) == ("00:00", "00:00:00")


def test_bars_are_stacked_and_the_table_has_every_number():
    chart = charts.bars(
        "Attempts", [0, 60], 60, [Series("completed", [6, 0], 0), Series("failed", [2, 0], 1)], to=lambda a, b: f"/x?{a}-{b}"
    )  # fmt: skip
    assert chart.ticks == ("8", "6", "4", "2", "0")
    # Six of eight above two of eight.
    assert re.findall(r'class="c(\d)"[^>]* y="([\d.]+)%"[^>]* height="([\d.]+)%"', chart.svg) == [
        ("1", "75", "25"),
        ("0", "0", "75"),
    ]
    assert [(row.at, row.cells, row.to) for row in chart.rows] == [
        (0.0, ("6", "2"), "/x?0-60"),
        (60.0, ("0", "0"), "/x?60-120"),
    ]
    assert chart.head == ("From", "Completed", "Failed")


def test_marks_outside_of_the_time_are_left_out():
    marks = [Mark(-1, "before"), Mark(30, "a deploy"), Mark(120, "after")]
    chart = charts.bars("Attempts", [0, 60], 60, [Series("completed", [1, 2])], marks=marks)
    assert [one.text for one in chart.marks] == ["a deploy"]


def test_a_line_has_a_gap_where_a_number_is_not_known():
    assert list(runs_of([None, 1, 2, None, 3])) == [(1, [1, 2]), (4, [3])]
    chart = charts.lines("Waiting", [0, 60, 120], 60, [Series("waiting", [4, None, 8])])
    assert [row.cells for row in chart.rows] == [("4",), ("–",), ("8",)]
    (path,) = re.findall(r'class="line c0" d="([^"]*)"', chart.svg)
    assert path == "M0 500 5 500 10 500M20 0 25 0 30 0"


def test_hostile_names_stay_text():
    chart = charts.bars('"><script>', [0], 60, [Series('<b>"', [1])])
    assert "<script" not in chart.svg
    assert "<b>" not in chart.svg


def test_a_heat_map_counts_every_duration_in_its_minute():
    found = [Histogram({10: 3, 11: 1}), Histogram(), Histogram({33: 100})]
    chart = charts.heat_map("Run time", [0, 60, 120], 60, found)
    assert [row.cells[0] for row in chart.rows] == ["4", "0", "100"]
    # Twenty-four buckets in twelve rows: the shortest at the bottom, the longest at the top.
    assert sorted(re.findall(r"M(\d+) (\d+)h1", chart.svg)) == [("0", "11"), ("2", "0")]
    assert chart.summary == "the darkest cell is 100 jobs"


def test_one_job_among_thousands_is_still_seen():
    assert durations.shade(1, 5000) == 1
    assert durations.shade(5000, 5000) == durations.SHADES
    assert durations.shade(1, 1) == durations.SHADES


def test_a_histogram_has_the_quantiles_and_every_count():
    chart = charts.histogram("Wait", Histogram({20: 90, 30: 10}))
    assert [row.cells[0] for row in chart.rows] == ["90", "10"]
    assert chart.summary == "p50 0.1 s, p95 3.3 s, p99 3.3 s".replace("0.1 s", "102 ms")
    assert len(re.findall(r'class="mark"', chart.svg)) == 3
    assert charts.histogram("Wait", Histogram()).summary == "no job"


def test_a_spark_is_as_tall_as_its_largest_number():
    assert 'd="M0 24V0h1V12h1V24h1V24z"' in charts.spark([10, 5, None])
    assert not charts.spark([0, None])


def test_spans_that_overlap_are_on_lanes_of_their_own():
    spans = [Span("a", 0, 10), Span("b", 5, 15), Span("c", 10, 20), Span("d", 15, 16)]
    assert [[one.label for one in lane] for lane in lanes(spans)] == [["a", "c"], ["b", "d"]]
    chart = charts.gantt("Workers", 8, 18, spans, keys=[(0, "completed")])
    # What began before is cut at the edge.
    assert re.findall(r'class="span c0" x="([\d.]+)%" y="(\d+)" width="([\d.]+)%"', chart.svg) == [
        ("0", "2", "20"), ("20", "2", "80"), ("0", "20", "70"), ("70", "20", "10"),
    ]  # fmt: skip
    assert [row.cells[:2] for row in chart.rows] == [
        ("a", "10 s"),
        ("b", "10 s"),
        ("c", "10 s"),
        ("d", "1.0 s"),
    ]


def test_columns_have_every_number_and_not_too_many_labels():
    labels = [str(1 << n) for n in range(25)]
    chart = charts.columns("Sizes", "Up to", "Jobs", labels, list(range(25)))
    assert [row.label for row in chart.rows] == labels
    assert chart.rows[-1].cells == ("24",)
    assert len(re.findall("<text", chart.axis)) <= 10
    assert 'data-say="up to 2: 1 job"' in chart.svg
    assert charts.columns("Sizes", "Up to", "Jobs", [], []).rows == ()


def test_labels_at_the_ends_of_the_axis_stay_inside_of_it():
    minute = charts.bars("Attempts", range(1_800_000_000, 1_800_000_060), 1, (Series("done", [1] * 60, 0),))
    anchors = re.findall(r'<text x="([\d.]+)%"[^>]* text-anchor="(\w+)"', str(minute.axis))
    assert anchors[0] == ("0", "start")
    assert anchors[-1] == ("100", "end")
    assert {anchor for _, anchor in anchors[1:-1]} == {"middle"}
