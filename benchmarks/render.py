"""From a results file to tables. Run: python benchmarks/render.py RESULTS.json [docs/benchmarks.md]"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import charts
import groups
import paths
from budgets import Budget, budgets
from figures import CLEAN, DASH, Record, Results, quantity
from systems import SYSTEMS

Column = tuple[str, str]
TITLES = {
    "A": "A: drain of no-op jobs, and E: cost per job",
    "B": "B: enqueue from one process",
    "C": "C: pickup, from enqueue to handler start",
    "D": "D: an idle pool, concurrency 25, 20 job names",
    "F": "F: jobs that sleep 10 ms",
    "G": "G: growth, draining",
    "G ops": "G: growth, with many waiting jobs",
    "G keys": "G: growth, with many keys",
    "H": "H: the cost of an attempt, without a server",
    "L": "L: drain under limits and keys",
    "paths": "Paths: 20,000 jobs, one process, 10 workers",
    "enqueue": "Paths: single enqueues, same core",
    "start": "Start: from `dayjob worker` to its first job",
    "load": "Latency under load: from enqueue to start, 10 workers, jobs of 10 ms",
    "P": "P: 500 jobs a second by a rate limit",
    "groups": "Groups: batches, chains and fan-outs",
    "call": "Call: from enqueue to answer, on an idle pool",
    "children": "Children of one atomic job",
    "limits": "Limits of the machine",
}
COLUMNS: dict[str, list[Column]] = {
    "A": [("rate", "jobs/s"), ("commands", "commands/job"), ("reads", "reads/job"), ("trips", "round trips/job"),
          ("server_us", "server µs/job"), ("worker_us", "worker µs/job"), ("bytes", "bytes/job")],
    "B": [("rate", "jobs/s"), ("cpu_us", "caller µs/job"), ("server_us", "server µs/job"), ("bytes", "bytes/job")],
    "C": [("p50_ms", "p50 ms"), ("p99_ms", "p99 ms"), ("first_ms", "first ms")],
    "D": [("sent_s", "commands sent/s"), ("heartbeat_s", "of them heartbeat"), ("inner_s", "inside scripts/s"),
          ("clients", "connections"), ("cpu_percent", "worker CPU %")],
    "F": [("rate", "jobs/s"), ("ideal", "achieved / ideal"), ("server_us", "server µs/job")],
    "G": [("rate", "jobs/s"), ("trips", "round trips/job"), ("server_us", "server µs/job"), ("worker_us", "worker µs/job")],
    "G ops": [("enqueue_us", "enqueue, server µs/job"), ("exchange_us", "exchange, server µs/job"),
              ("bytes_per_job", "bytes/job"), ("payload_bytes", "payload bytes"), ("memory_ratio", "memory / payload")],
    "G keys": [("idle_bytes", "bytes, idle key"), ("turn_bytes", "bytes, key that waits for its turn"),
               ("rate_bytes", "bytes, key that waits for a rate"), ("slowest_ms", "slowest script, ms")],
    "L": [("rate", "jobs/s"), ("commands", "commands/job"), ("trips", "round trips/job"), ("server_us", "server µs/job"),
          ("worker_us", "worker µs/job")],
    "P": [("rate", "jobs/s"), ("busiest", "most in a second"), ("commands", "commands/job"), ("server_us", "server µs/job"),
          ("worker_us", "worker µs/job")],
    "paths": [("rate", "jobs/s"), ("commands", "commands/job"), ("trips", "round trips/job"), ("server_us", "server µs/job"),
              ("worker_us", "worker µs/job")],
    "enqueue": [("rate", "jobs/s"), ("cpu_us", "caller µs/job"), ("server_us", "server µs/job")],
    "start": [("first_s", "first job, s"), ("parent_mb", "parent MB"), ("child_mb", "child MB")],
    "load": [("rate", "enqueued/s"), ("p50_ms", "p50 ms"), ("p99_ms", "p99 ms"), ("ideal_p50_ms", "ideal p50 ms"),
             ("ideal_p99_ms", "ideal p99 ms")],
    "groups": [("rate", "jobs/s"), ("count", "jobs"), ("seconds", "first to last, s"), ("enqueue_us", "caller µs/job"),
               ("commands", "commands/job"), ("server_us", "server µs/job"), ("worker_us", "worker µs/job")],
    "children": [("visible_s", "completion until all are visible, s"), ("job_s", "until its completion, s"), ("count", "children")],
    "call": [("p50_ms", "p50 ms"), ("pickup_ms", "p50 ms until its handler starts"), ("p99_ms", "p99 ms")],
    "limits": [("rate", "operations/s")],
}  # fmt: skip
#: Against what each row is compared, by workload: the field and the key.
AGAINST = {
    "A": ("rate", "A / dayjob / sync"),
    "L": ("rate", "L / dayjob / sync / plain"),
    "paths": ("rate", "paths / dayjob / sync / plain"),
    "groups": ("rate", "groups / dayjob / sync / plain jobs"),
    "C": ("p50_ms", "C / raw / redis-py / 20 ms apart"),
}


def brief(record: Record) -> str:
    """One run in one line, while it goes on."""
    if record["error"]:
        return f"{record['key']}: FAILED: {record['error'][:160]}"
    shown = [
        f"{label} {record[field]:g}"
        for field, label in COLUMNS.get(record["workload"], ())[:3]
        if field in record
    ]
    wrong = [f"{record[field]} {field}" for field in ("missing", "twice") if record.get(field)]
    return ", ".join(
        [f"{record['key']}: {' '.join(shown[:1])}", *shown[1:], *wrong, f"foreign {record['foreign']}"]
    )


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("|" + "---|" * (lines[0].count("|") - 1))
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def report(raw: dict[str, Any]) -> str:
    """All tables, as Markdown."""
    results = Results(raw)
    parts = [_about(results), "## Budgets\n\n" + _budgets(results)]
    for workload, title in TITLES.items():
        keys = results.keys(workload)
        if keys:
            body = _prices(results) if workload == "H" else _workload(results, workload, keys)
            parts.append(f"## {title}\n\n{body}")
    parts.append("## Failed runs and missing systems\n\n" + _wrong(results))
    return "\n\n".join(parts) + "\n"


def _about(results: Results) -> str:
    raw = results.raw
    about = raw["machine"]
    foreign = sorted(one["foreign"] for one in results.records) or [0.0]
    dirty = sum(one > CLEAN for one in foreign)
    loops = sorted(one["loop_ms"] for one in results.records) or [0.0]
    versions = ", ".join(
        f"{name} {one['version']}"
        for name, one in raw["systems"].items()
        if one["version"] and name not in ("bare", "raw", "tasks")
    )
    packages = ", ".join(f"{name} {number}" for name, number in about["packages"].items())
    return "\n".join(
        [
            "## This run",
            "",
            f"Form `{raw['form']}`, {raw['rounds']} rounds (systems that a budget compares closely run two or three times in each; slow systems and costs at rest run in one only), {raw['started']} UTC, {raw.get('seconds', 0)} s in total.",
            "",
            f"- Machine: {about['cpu']}, {about['cores']} cores, {about['memory_gb']} GB, {about['system']}.",
            f"- Server: {raw['server']}, no persistence except in rows marked AOF (appendfsync everysec).",
            f"- Source of dayjob: {_source(raw)}.",
            f"- Python {about['python']}; {packages}.",
            f"- Systems: {versions}.",
            f"- CPU used by other processes during a run: median {foreign[len(foreign) // 2]:.2f} cores, worst {foreign[-1]:.2f}.",
            f"- {dirty} of {len(foreign)} runs had more than {CLEAN} of a core used by other processes; none was left out.",
            f"- A fixed loop before and after each run took {loops[0]:.1f} ms at best, {loops[-1]:.1f} at worst, {loops[len(loops) // 2]:.1f} in the median.",
        ]
    )


def _source(raw: dict[str, Any]) -> str:
    before, after = raw.get("source", "not recorded"), raw.get("source_after")
    if after is None or after == before:
        return before
    return f"{before}, CHANGED DURING THE RUN to {after}: the rounds did not measure the same code"


def all_budgets(results: Results) -> list[Budget]:
    return [*budgets(results), *paths.budgets(results), *groups.budgets(results)]


def _budgets(results: Results) -> str:
    found = all_budgets(results)
    rows = [
        [one.workload, one.what, one.seen, one.asked, one.verdict, one.note.removeprefix("A / ")]
        for one in found
    ]
    text = table(["", "what", "measured: median (lowest to highest)", "budget", "", ""], rows)
    missed = [one for one in found if one.verdict == "NOT MET"]
    if not missed:
        return text
    why = reasons()
    lines = [
        f"- **{one.name}**: {one.seen}, asked {one.asked}. {why.get(one.name, 'The reason is not known.')}"
        for one in missed
    ]
    return "\n".join([text, "", "### Missed, and why", "", *lines])


def reasons() -> dict[str, str]:
    """Why a budget is missed, by its name, if somebody found out."""
    found: dict[str, str] = tomllib.loads(REASONS.read_text("utf-8"))
    return found


def _workload(results: Results, workload: str, keys: list[str]) -> str:
    columns = [
        (field, label)
        for field, label in COLUMNS[workload]
        if any(results.figure(key, field) is not None for key in keys)
    ]
    field, base = AGAINST.get(workload, ("", ""))
    compared = base in results.by_key
    first = columns[0][0] if columns else ""
    head = ["system", "configuration", *(label for _, label in columns)]
    if compared:
        head.append("raw BLPOP = 1" if workload == "C" else "dayjob sync = 1")
    if workload != "D":
        head.append("missing / twice")
    order: Callable[[str], tuple[bool, float]] = lambda key: _order(results, key, first)  # noqa: E731 - the annotation needs a name
    rows = []
    for key in sorted(keys, key=order):
        one = results.by_key[key][0]
        row = [one["system"], _configuration(one), *(_cell(results, key, field_) for field_, _ in columns)]
        if compared:
            ratio = results.ratio(key, base, field)
            row.append(DASH if ratio is None else ratio.text(quantity))
        if workload != "D":
            row.append(_delivered(results.by_key[key]))
        rows.append(row)
    return table(head, rows) + ("" if workload != "D" else "\n\n" + _breakdown(results, keys))


def _order(results: Results, key: str, field: str) -> tuple[bool, float]:
    figure = results.figure(key, field)
    lowest_first = field in ("p50_ms", "sent_s", "enqueue_us")
    return figure is None, 0.0 if figure is None else (figure.middle if lowest_first else -figure.middle)


def _configuration(record: Record) -> str:
    system = SYSTEMS[record["system"]]
    about = [config.about for config in system.configs if config.name == record["config"]]
    configuration = about[0] if about and record["workload"] in ("A", "G") else record["config"]
    return ", ".join(filter(None, (configuration, record["variant"])))


def _cell(results: Results, key: str, field: str) -> str:
    figure = results.figure(key, field)
    return DASH if figure is None else figure.text(quantity)


def _delivered(records: list[Record]) -> str:
    missing, twice = (sum(one.get(field, 0) for one in records) for field in ("missing", "twice"))
    return f"{missing} / {twice}"


def _breakdown(results: Results, keys: list[str]) -> str:
    lines = []
    for key in keys:
        found = results.good(key, "what")
        if found and found[0]["system"] == "dayjob":
            what = ", ".join(f"{name} {number:g}" for name, number in found[-1]["what"].items())
            lines.append(f"- dayjob, {found[0]['variant']}, commands per second: {what}.")
    return "\n".join(lines)


def _prices(results: Results) -> str:
    records = [one for one in results.records if one["workload"] == "H" and not one["error"]]
    if not records:
        return "not measured"
    rows = []
    for label in records[0]["micros"]:
        values = sorted(one["micros"][label] for one in records)
        rows.append([label, f"{values[len(values) // 2]:.2f} ({values[0]:.2f}{DASH}{values[-1]:.2f})"])
    return table(["handler", "µs per attempt: decode, call, settle"], rows)


def _wrong(results: Results) -> str:
    lines = [
        f"- {name} was not measured: {one['reason']}"
        for name, one in results.raw["systems"].items()
        if one["reason"]
    ]
    lines += [
        f"- {record['key']}, round {record['round'] + 1}: {record['error']}"
        for record in results.records
        if record["error"]
    ]
    return "\n".join(lines) or "None."


#: Why budgets are missed. A reason is shown only if its budget is missed.
REASONS = Path(__file__).resolve().parent / "reasons.toml"
#: The text above the tables.
METHOD = Path(__file__).resolve().parent / "method.md"


#: Between these lines of another page, like the README, its figures are kept up to date.
BEGIN, END = "<!-- figures: made by `make bench` -->\n", "<!-- end of figures -->\n"


#: The rows of the short table: the system, its name in the table. The full table is in docs/benchmarks.md.
HEADLINE = {
    "dayjob": "dayjob, sync jobs",
    "gocraft": "gocraft/work (Go)",
    "sidekiq": "Sidekiq (Ruby)",
    "dramatiq": "Dramatiq (Python)",
    "celery": "Celery (Python)",
}


def _in_headline(record: Record) -> bool:
    """Whether this run belongs in the short table: dayjob's sync jobs, and peers in one process or in their usual setting."""
    system = SYSTEMS[record["system"]]
    if record["system"] not in HEADLINE or record["variant"]:
        return False
    if system.kind == "own":
        return record["config"] == "sync"
    return record["config"] == "usual" or system.config(record["config"]).processes == 1


def headline(results: Results) -> str:
    """The short table of the README: five systems, each at its fastest."""
    fastest = {
        results.by_key[key][0]["system"]: key
        for key in sorted(results.keys("A"), key=lambda one: results.middle(one, "rate"))
        if _in_headline(results.by_key[key][0])
    }
    rows = []
    for system, key in sorted(fastest.items(), key=lambda pair: -results.middle(pair[1], "rate")):
        cells = [_cell(results, key, field) for field in ("rate", "commands", "server_us", "worker_us")]
        rows.append([HEADLINE[system], *cells])
    about = results.raw["machine"]
    return (
        f"No-op jobs, one worker process or the system's usual setting, {about['cores']} shared cores. "
        f"Median of {results.raw['rounds']} rounds (lowest to highest):\n\n"
        + table(
            ["", "jobs/s", "Redis commands per job", "server CPU per job, µs", "worker CPU per job, µs"], rows
        )
        + "\n"
    )


def draw(results: Results, folder: Path) -> str:
    """Write the charts; the Markdown that shows them."""
    found = all_budgets(results)
    drawn = (
        ("bench-throughput.svg", charts.throughput(results), "No-op jobs per second of each system", "A"),
        ("bench-latency.svg", charts.latency(results), "Latency under load of four systems", "load"),
        ("bench-paths.svg", charts.paths(found), "The paths beside the plain one, and their targets", ""),
    )
    parts = []
    for name, svg, text, workload in drawn:
        shown = charts.write(folder, name, svg, text)
        if shown:
            title = TITLES.get(workload, "Budgets")
            parts.append(f"{shown}\nThe same in figures: [{title}](#{_anchor(title)}).\n\n")
    return "## Charts\n\n" + "".join(parts) if parts else ""


def _anchor(title: str) -> str:
    """The anchor of a heading, as GitHub and mkdocs make it."""
    kept = "".join(char for char in title.lower() if char.isalnum() or char in " -_")
    return kept.replace(" ", "-")


def main(source: str, target: str | None = None, page: str | None = None) -> None:
    raw = json.loads(Path(source).read_text())
    text = report(raw)
    if target is None:
        print(text)
        return
    drawn = draw(Results(raw), Path(target).parent / "images")
    Path(target).write_text(METHOD.read_text() + "\n" + drawn + text)
    if page is not None:
        before, _, rest = Path(page).read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        Path(page).write_text(before + BEGIN + "\n" + headline(Results(raw)) + "\n" + END + after)


if __name__ == "__main__":
    main(*sys.argv[1:])
