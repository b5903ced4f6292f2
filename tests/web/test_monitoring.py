"""Metrics by Prometheus's conventions; and rules and a dashboard that name only metrics that /metrics has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from dayjob import Rate, WorkerPool
from dayjob.cli.alerts import alerts
from dayjob.cli.grafana import PANELS, grafana
from server import missing, wait_until

METRIC = re.compile(r"\bdayjob_[a-z_]+")
UNITS = ("seconds", "bytes")


def printed(command, *words: str) -> str:
    done = CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def page(console, redis_url) -> str:
    """/metrics of a namespace in which every metric has a sample."""
    pool = WorkerPool(concurrency=2, namespace=console.namespace, redis=redis_url)

    @pool.job(max_fails=1, limits=[Rate(100, per=1)])
    def charge(order: int) -> None:
        if order % 2:
            raise ValueError("no bank")

    # Histograms begin with the first scrape.
    console.get("/metrics")
    console.admin.limit("charge", 5, force=True)
    with pool:
        pool.enqueuer.enqueue_many("charge", [{"order": n} for n in range(4)])
        wait_until(lambda: console.admin.count("dead").total == 2)
        # Figures arrive with the next exchange or beat, each by itself.
        seen = (
            "dayjob_run_seconds_count", "dayjob_wait_seconds_count", "dayjob_redis_round_trip_seconds_count",
            'counter="done",job="charge"} 2', 'counter="failed",job="charge"} 2',
        )  # fmt: skip
        wait_until(lambda: all(one in console.get("/metrics").text for one in seen))
        return console.get("/metrics").text


def test_the_metrics_follow_the_conventions(page):
    families = list(text_string_to_metric_families(page))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation.endswith("."), family.name
        assert family.name.startswith("dayjob_")
        names = {sample.name for sample in family.samples}
        if family.type == "counter":
            # The parser takes the suffix from the name of the family.
            assert names <= {f"{family.name}_total"}
            assert family.name != "dayjob"
        elif family.type == "histogram":
            assert family.name.endswith(UNITS)
            assert names <= {f"{family.name}{suffix}" for suffix in ("_bucket", "_sum", "_count")}
        else:
            assert family.type == "gauge"
            assert not family.name.endswith("_total")
        for sample in family.samples:
            assert sample.labels["namespace"]
    totals = next(family for family in families if family.name == "dayjob_jobs")
    found = {(one.labels["counter"], one.labels["job"]): one.value for one in totals.samples}
    assert (found[("done", "charge")], found[("failed", "charge")]) == (2, 2)


@pytest.mark.parametrize("command", [alerts, grafana], ids=("alerts", "grafana"))
def test_only_metrics_that_exist_are_named(page, command):
    exported = {sample.name for family in text_string_to_metric_families(page) for sample in family.samples}
    named = set(METRIC.findall(printed(command)))
    assert len(named) > 8
    assert named <= exported


def test_the_rules_are_rules_of_prometheus(page):
    (group,) = yaml.safe_load(printed(alerts))["groups"]
    assert group["name"] == "dayjob"
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) > 8
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        assert set(rule["annotations"]) == {"summary", "description"}
    states = {
        sample.labels["state"]
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if "state" in sample.labels
    }
    assert set(re.findall(r'state="(\w+)"', printed(alerts))) <= states


def test_promtool_accepts_the_rules_and_every_expression_of_the_dashboard(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        missing("promtool is not installed: run scripts/languages.py")
    rules = tmp_path / "rules.yml"
    rules.write_text(printed(alerts, "--late", "15m"), "utf-8")
    panels = tmp_path / "panels.yml"
    exprs = [expr for panel in PANELS for expr, _ in panel.lines]
    shown = [
        {"record": f"r{n}", "expr": expr.replace("$__rate_interval", "5m")} for n, expr in enumerate(exprs)
    ]
    panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": shown}]}), "utf-8")
    for file in (rules, panels):
        done = subprocess.run(
            [promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_queue_is_late_when_the_operator_says_so():
    assert "dayjob_queue_oldest_seconds > 900 and" in printed(alerts, "--late", "15m")


def test_the_dashboard_can_be_imported():
    found = json.loads(printed(grafana))
    assert [one["name"] for one in found["templating"]["list"]] == ["source", "namespace"]
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"]) == len(PANELS)
    cells = set()
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not own & cells, panel["title"]
        cells |= own
        assert panel["targets"]
        for target in panel["targets"]:
            assert 'namespace="$namespace"' in target["expr"]
