"""Charts as SVG, drawn on the server: bars and lines over time, heat maps, histograms, and small ones for tables and tiles.

Positions in an SVG are shares of its width and height, so a chart fits every screen. Every chart has its data as a table too.
"""

from __future__ import annotations

from dayjob.web.charts.bars import bars
from dayjob.web.charts.columns import columns
from dayjob.web.charts.durations import heat_map, histogram
from dayjob.web.charts.gantt import Span, gantt
from dayjob.web.charts.lines import lines
from dayjob.web.charts.parts import Chart, Leads, Mark, Series
from dayjob.web.charts.scale import clock
from dayjob.web.charts.small import span_range, spark
from dayjob.web.charts.units import BYTES, COUNT, SECONDS, Unit

__all__ = [
    "BYTES",
    "COUNT",
    "SECONDS",
    "Chart",
    "Leads",
    "Mark",
    "Series",
    "Span",
    "Unit",
    "bars",
    "clock",
    "columns",
    "gantt",
    "heat_map",
    "histogram",
    "lines",
    "span_range",
    "spark",
]
