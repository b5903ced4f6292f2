"""`dayjob alerts`: alert rules for Prometheus, made from the metrics of the console."""

from __future__ import annotations

import json
from dataclasses import dataclass

import click

from dayjob.errors import BadOption
from dayjob.text import read_span


@dataclass(frozen=True, slots=True)
class PrometheusRule:
    """One alert rule."""

    name: str
    expr: str
    #: How long it must be so.
    lasts: str
    severity: str
    summary: str
    todo: str


def rules(late: int) -> tuple[PrometheusRule, ...]:
    """The rules; a queue is late if its oldest job has waited for so many seconds."""
    return (*_queue_rules(late), *_job_rules())


def _queue_rules(late: int) -> tuple[PrometheusRule, ...]:
    return (
        PrometheusRule(
            "DayjobNotScraped", "absent(dayjob_redis_time_seconds)", "5m", "critical",
            "Prometheus gets no figures of dayjob.", "Check that a console runs (dayjob web), that it reaches Redis, and that Prometheus scrapes its /metrics.",
        ),
        PrometheusRule(
            "DayjobNoPool", "dayjob_pools == 0 and on (namespace) sum by (namespace) (dayjob_queue_size) > 0", "1m", "critical",
            "No pool is running in {{ $labels.namespace }}, and jobs wait.", "Start workers: dayjob worker MODULE:POOL",
        ),
        PrometheusRule(
            "DayjobQueueWithoutWorkers",
            "dayjob_queue_size > 0 and on (namespace, queue) dayjob_queue_workers == 0 and on (namespace, queue) dayjob_queue_paused == 0",
            "2m", "critical", "No live pool has the job {{ $labels.queue }}, and {{ $value }} jobs wait.",
            "Start a pool that has it; dayjob queues show {{ $labels.queue }}",
        ),
        PrometheusRule(
            "DayjobQueueLate", f"dayjob_queue_oldest_seconds > {late} and on (namespace, queue) dayjob_queue_paused == 0", "1m", "warning",
            "The oldest job of {{ $labels.queue }} has waited for {{ $value | humanizeDuration }}.", "dayjob scale shows what is missing.",
        ),
        PrometheusRule(
            "DayjobQueueGrows",
            "deriv(dayjob_queue_size[15m]) > 0 and on (namespace, queue) dayjob_queue_oldest_seconds > 60 and on (namespace, queue) dayjob_queue_paused == 0",
            "30m", "warning", "{{ $labels.queue }} has grown for half an hour.", "dayjob scale shows how many workers it needs.",
        ),
        PrometheusRule(
            "DayjobQueuePaused", "dayjob_queue_paused == 1 and on (namespace, queue) dayjob_queue_size > 0", "1h", "warning",
            "{{ $labels.queue }} has been paused for an hour, and jobs wait.", "Resume it: dayjob queues resume {{ $labels.queue }}",
        ),
        PrometheusRule(
            "DayjobLimitDelays", f"dayjob_limit_delay_seconds > {late} and on (namespace, limit) dayjob_limit_waiting > 0", "10m", "warning",
            "A new job waits for {{ $value | humanizeDuration }} for the limit {{ $labels.limit }}.",
            "dayjob limits ls shows what it allows; dayjob limits set {{ $labels.limit }} changes it.",
        ),
    )  # fmt: skip


def _job_rules() -> tuple[PrometheusRule, ...]:
    return (
        PrometheusRule(
            "DayjobWorkersStuck", "dayjob_workers_stuck > 0", "5m", "warning",
            "{{ $value }} workers of {{ $labels.namespace }} run jobs that passed their timeout and do not end.",
            "dayjob pools stacks shows where they are; dayjob jobs kill ID --running ends one.",
        ),
        PrometheusRule(
            "DayjobJobsFail",
            'sum by (namespace, job_name) (label_replace(rate(dayjob_jobs_total{counter="failed"}[10m]), "job_name", "$1", "job", "(.*)"))'
            ' / sum by (namespace, job_name) (label_replace(rate(dayjob_run_seconds_count[10m]), "job_name", "$1", "job", "(.*)")) > 0.1',
            "10m", "warning", "{{ $value | humanizePercentage }} of the attempts of {{ $labels.job_name }} fail.", "dayjob dead groups shows why.",
        ),
        PrometheusRule(
            "DayjobJobsDie", 'increase(dayjob_jobs_total{counter="dead"}[15m]) > 0', "0m", "warning",
            "Jobs of {{ $labels.job }} failed for good.", "dayjob dead ls shows them; dayjob dead retry runs them again.",
        ),
        PrometheusRule(
            "DayjobScheduleMissed", 'increase(dayjob_jobs_total{counter="missed"}[15m]) > 0', "0m", "warning",
            "A tick of a schedule of {{ $labels.job }} enqueued nothing.", "dayjob periodic ls shows the schedules.",
        ),
        PrometheusRule(
            "DayjobBrokenEntries", 'dayjob_stored_jobs{state="broken"} > 0', "1m", "warning",
            "{{ $value }} entries of {{ $labels.namespace }} could not be read as jobs.", "dayjob broken ls shows them.",
        ),
        PrometheusRule(
            "DayjobRedisSlow",
            "histogram_quantile(0.99, sum by (namespace, le) (rate(dayjob_redis_round_trip_seconds_bucket[5m]))) > 0.1", "10m", "warning",
            "One percent of the round trips to Redis takes more than {{ $value | humanizeDuration }}.", "dayjob doctor checks the server.",
        ),
    )  # fmt: skip


@click.command(epilog="Example: dayjob alerts --late 15m > /etc/prometheus/rules/dayjob.yml")
@click.option(
    "--late",
    metavar="SPAN",
    default="5m",
    show_default=True,
    help="After how long a waiting job makes its queue late.",
)
def alerts(late: str) -> None:
    """Print alert rules for Prometheus, for you to edit. They use the metrics of the console's /metrics."""
    seconds = read_span(late, "--late")
    if seconds < 1:
        raise BadOption(f"--late {late!r}: 1s at least")
    lines = ["groups:", "  - name: dayjob", "    rules:"]
    for rule in rules(int(seconds)):
        # A JSON string is a YAML string.
        lines += [
            f"      - alert: {rule.name}", f"        expr: {json.dumps(rule.expr)}", f"        for: {rule.lasts}",
            f"        labels: {{severity: {rule.severity}}}", "        annotations:", f"          summary: {json.dumps(rule.summary)}",
            f"          description: {json.dumps(rule.todo)}",
        ]  # fmt: skip
    click.echo("\n".join(lines))
