"""`dayjob grafana`: a dashboard for Grafana, made from the metrics of the console."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import click
import msgspec

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_OWN = 'namespace="$namespace"'
#: Columns of Grafana's grid.
_COLUMNS = 24
_HEIGHTS = {"stat": 4, "timeseries": 8}


@dataclass(frozen=True, slots=True)
class DashboardPanel:
    """One panel: what it draws, and how wide."""

    title: str
    unit: str
    #: Expressions, each with its legend.
    lines: tuple[tuple[str, str], ...]
    kind: Literal["stat", "timeseries"] = "timeseries"
    width: int = 12
    stacked: bool = False


def _rate(metric: str, by: str, counter: str = "") -> str:
    chosen = f'{{{_OWN},counter="{counter}"}}' if counter else f"{{{_OWN}}}"
    return f"sum by ({by}) (rate({metric}{chosen}[$__rate_interval]))"


def _quantile(share: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', labels)})"


PANELS = (
    DashboardPanel("Waiting", "short", ((f"sum(dayjob_queue_size{{{_OWN}}})", ""),), "stat", 4),
    DashboardPanel("Oldest waiting job", "s", ((f"max(dayjob_queue_oldest_seconds{{{_OWN}}})", ""),), "stat", 4),
    DashboardPanel("Workers busy", "percentunit", ((f"sum(dayjob_workers_busy{{{_OWN}}}) / sum(dayjob_workers{{{_OWN}}})", ""),), "stat", 4),
    DashboardPanel("Workers stuck", "short", ((f"sum(dayjob_workers_stuck{{{_OWN}}})", ""),), "stat", 4),
    DashboardPanel("Dead", "short", ((f'dayjob_stored_jobs{{{_OWN},state="dead"}}', ""),), "stat", 4),
    DashboardPanel("Pools", "short", ((f"dayjob_pools{{{_OWN}}}", ""), (f"dayjob_pools_quiet{{{_OWN}}}", "quiet")), "stat", 4),
    DashboardPanel("Completed by job", "ops", ((_rate("dayjob_jobs_total", "job", "done"), "{{job}}"),), stacked=True),
    DashboardPanel("Failed attempts by job", "ops", ((_rate("dayjob_jobs_total", "job", "failed"), "{{job}}"),), stacked=True),
    DashboardPanel("Waiting by queue", "short", ((f"dayjob_queue_size{{{_OWN}}}", "{{queue}}"),), stacked=True),
    DashboardPanel("Oldest waiting job by queue", "s", ((f"dayjob_queue_oldest_seconds{{{_OWN}}}", "{{queue}}"),)),
    DashboardPanel(
        "Wait time", "s", ((_quantile(0.5, "dayjob_wait_seconds"), "p50"), (_quantile(0.95, "dayjob_wait_seconds"), "p95"), (_quantile(0.99, "dayjob_wait_seconds"), "p99")),
    ),
    DashboardPanel("Run time by job, p95", "s", ((_quantile(0.95, "dayjob_run_seconds", "job"), "{{job}}"),)),
    DashboardPanel(
        "Workers", "short",
        ((f"dayjob_workers{{{_OWN}}}", "all"), (f"dayjob_workers_busy{{{_OWN}}}", "busy"), (f"dayjob_workers_stuck{{{_OWN}}}", "stuck")),
    ),
    DashboardPanel("Running by job", "short", ((f"dayjob_queue_running{{{_OWN}}}", "{{queue}}"),), stacked=True),
    DashboardPanel("Waiting for a limit", "short", ((f"dayjob_limit_waiting{{{_OWN}}}", "{{limit}}"),), stacked=True),
    DashboardPanel("Wait that a limit adds", "s", ((f"dayjob_limit_delay_seconds{{{_OWN}}}", "{{limit}}"),)),
    DashboardPanel("Jobs not in a queue", "short", ((f"dayjob_stored_jobs{{{_OWN}}}", "{{state}}"),)),
    DashboardPanel("Memory of all pools", "bytes", ((f"dayjob_pools_memory_bytes{{{_OWN}}}", "resident"),)),
    DashboardPanel(
        "Round trips to Redis", "s",
        ((_quantile(0.5, "dayjob_redis_round_trip_seconds"), "p50"), (_quantile(0.99, "dayjob_redis_round_trip_seconds"), "p99")),
    ),
    DashboardPanel("Time of a scrape", "s", ((f"dayjob_scrape_seconds{{{_OWN}}}", "scrape"),)),
)  # fmt: skip


@click.command(epilog="Example: dayjob grafana > dayjob.json")
def grafana() -> None:
    """Print a dashboard for Grafana, to import there. It uses the metrics of the console's /metrics."""
    click.echo(msgspec.json.format(msgspec.json.encode(dashboard())))


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "title": "dayjob",
        "uid": "dayjob",
        "tags": ["dayjob"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": _placed(),
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "namespace", "label": "Namespace", "type": "query", "datasource": _SOURCE, "refresh": 2, "sort": 1,
            "query": {"query": "label_values(dayjob_pools, namespace)", "refId": "namespaces"},
        },
    ]  # fmt: skip


def _placed() -> list[dict[str, Any]]:
    """The panels in rows, from left to right."""
    placed = []
    x = y = height = 0
    for number, panel in enumerate(PANELS, 1):
        if x + panel.width > _COLUMNS:
            x, y, height = 0, y + height, 0
        height = max(height, _HEIGHTS[panel.kind])
        place = {"x": x, "y": y, "w": panel.width, "h": _HEIGHTS[panel.kind]}
        placed.append(_panel(number, panel, place))
        x += panel.width
    return placed


def _panel(number: int, panel: DashboardPanel, place: dict[str, int]) -> dict[str, Any]:
    custom = {"fillOpacity": 20, "stacking": {"mode": "normal"}} if panel.stacked else {}
    return {
        "id": number, "title": panel.title, "type": panel.kind, "datasource": _SOURCE, "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expr, "legendFormat": legend or panel.title}
            for place, (expr, legend) in enumerate(panel.lines)
        ],
    }  # fmt: skip
