"""Where dayjob must stand: each budget, what was measured for it, and whether it is met. Ratios within one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from figures import DASH, TIMES, Figure, Results, quantity
from systems import PYTHON

#: What some budgets ask, by the workload and name they are listed under.
SYNC, ASYNC, BARE = "A / dayjob / sync", "A / dayjob / async", "A / bare / loop"


@dataclass(frozen=True)
class Budget:
    """One line of the table."""

    workload: str
    what: str
    figure: Figure | None
    least: float | None = None
    most: float | None = None
    unit: str = TIMES
    note: str = ""

    @property
    def name(self) -> str:
        """Its name in reasons.toml."""
        return f"{self.workload}: {self.what}"

    @property
    def asked(self) -> str:
        bound = f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"
        return f"{bound} {self.unit}".strip()

    @property
    def seen(self) -> str:
        return DASH if self.figure is None else self.figure.text(quantity)

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return "not measured"
        if self.least is not None:
            return "met" if self.figure.middle >= self.least else "NOT MET"
        return "met" if self.most is not None and self.figure.middle <= self.most else "NOT MET"


def budgets(results: Results) -> list[Budget]:
    """Every budget."""
    return [
        *_drain(results),
        *_enqueue(results),
        *_pickup(results),
        *_idle(results),
        *_rest(results),
        *_limits(results),
        _delivery(results),
    ]


def _drain(results: Results) -> Iterator[Budget]:
    keys = results.keys("A")
    plain = [key for key in keys if results.by_key[key][0]["variant"] == ""]
    go = results.fastest([key for key in plain if key.startswith("A / gocraft /")])
    single = {
        f"A / {system.name} / {one.name}" for system in PYTHON for one in system.configs if one.processes == 1
    }
    python = results.fastest([key for key in plain if key in single])
    yield Budget("A", "sync / gocraft/work", go and results.ratio(SYNC, go, "rate"), least=8, note=go or "")
    note = python.removeprefix("A / ") if python else ""
    yield Budget(
        "A", "sync / fastest Python peer", python and results.ratio(SYNC, python, "rate"), least=20, note=note
    )
    yield Budget("A", "sync / bare loop", results.ratio(SYNC, BARE, "rate"), least=0.65)
    yield Budget("A", "async / sync", results.ratio(ASYNC, SYNC, "rate"), least=0.65)
    yield Budget("A", "1 ms round trip / without", results.ratio(f"{SYNC} / 1 ms", SYNC, "rate"), least=0.7)
    yield Budget("E", "round trips per job", results.figure(SYNC, "trips"), most=0.05, unit="")
    yield Budget("E", "server CPU per job", results.figure(SYNC, "server_us"), most=6, unit="µs")


def _enqueue(results: Results) -> Iterator[Budget]:
    for pin in ("same", "scheduler"):
        pairs = (("sync", "redis-py"), ("async", "async"))
        for ours, theirs in pairs:
            for mode, least in (("single", 0.7), ("bulk", 0.6)):
                above, below = f"B / dayjob / {ours} / {mode}, {pin}", f"B / raw / {theirs} / {mode}, {pin}"
                if above in results.by_key:
                    what = (
                        f"{ours}, {mode} / raw redis-py ({pin} core)"
                        if pin == "same"
                        else f"{ours}, {mode} / raw redis-py"
                    )
                    yield Budget("B", what, results.ratio(above, below, "rate"), least=least)


def _pickup(results: Results) -> Iterator[Budget]:
    ours, theirs = "C / dayjob / sync / 20 ms apart", "C / raw / redis-py / 20 ms apart"
    yield Budget("C", "p50 / raw BLPOP wake-up", results.ratio(ours, theirs, "p50_ms"), most=1.5)
    peers = {
        key: figure.middle
        for key in results.keys("C")
        if results.by_key[key][0]["system"] not in ("dayjob", "raw")
        and key.endswith("20 ms apart")
        and (figure := results.figure(key, "p50_ms"))
    }
    fastest = min(peers, key=peers.__getitem__, default="")
    ahead = results.ratio(ours, fastest, "p50_ms")
    yield Budget("C", "p50 / fastest peer", ahead, most=1, note=fastest.removeprefix("C / "))
    yield Budget("C", "p99", results.figure(ours, "p99_ms"), most=5, unit="ms", note="on a quiet machine")
    yield Budget("C", "first job after start", results.figure(ours, "first_ms"), most=20, unit="ms")


def _idle(results: Results) -> Iterator[Budget]:
    one, wide, many = (
        f"D / dayjob / sync / {pools}" for pools in ("1 pool", "1 pool, 200 names", "100 pools")
    )
    inner = results.figure(one, "inner_s")
    note = (
        f"heartbeat and leader's chores included; {inner.text(quantity)} more run inside scripts"
        if inner
        else ""
    )
    yield Budget("D", "commands/s of one pool", results.figure(one, "sent_s"), most=1.5, unit="", note=note)
    yield Budget("D", "the same, 200 names / 20", results.ratio(wide, one, "sent_s"), most=1.1)
    yield Budget(
        "D",
        "commands/s of 100 pools",
        results.figure(many, "sent_s"),
        most=40,
        unit="",
        note="heartbeats included",
    )
    clients = Figure.of(found["clients"] / found["pools"] for found in results.good(many, "clients"))
    yield Budget("D", "connections per pool", clients, most=3, unit="")


def _rest(results: Results) -> Iterator[Budget]:
    yield Budget(
        "F",
        "100 threads, achieved / ideal",
        results.figure("F / dayjob / sync / 100 at once", "ideal"),
        least=0.95,
    )
    limit = results.figure("F / tasks / loop / 1000 at once", "ideal")
    yield Budget(
        "F",
        "1,000 async, achieved / ideal",
        results.figure("F / dayjob / async / 1000 at once", "ideal"),
        least=0.8,
        note="" if limit is None else f"asyncio tasks alone, without server and pool: {limit.text(quantity)}",
    )
    few, many = "G / dayjob / sync / 5 names", "G / dayjob / sync / 200 names"
    yield Budget("G", "time per job, 200 names / 5", results.ratio(few, many, "rate"), most=1.3)
    yield Budget("G", "server CPU per job, 200 names / 5", results.ratio(many, few, "server_us"), most=1.3)
    base, top = "G ops / dayjob / ops / 1,000 waiting", "G ops / dayjob / ops / 1,000,000 waiting"
    yield Budget("G", "server time per job, 1 M waiting / 1 k", results.ratio(top, base, "job_us"), most=1.2)
    huge = "G ops / dayjob / ops / 10,000,000 waiting"
    for key, label in ((top, "1 M"), (huge, "10 M")):
        worst = Figure.of(max(one["worst_ms"].values()) for one in results.good(key, "worst_ms"))
        yield Budget("G", f"slowest operation at {label} waiting", worst, most=10, unit="ms")
    keys = "G keys / dayjob / ops / 100,000 keys wait, 1,000,000 seen"
    for field, what, most, unit in (
        ("slowest_ms", "slowest script with 100,000 keys", 10, "ms"),
        ("idle_bytes", "memory per idle key", 1, "bytes"),
        ("turn_bytes", "memory per key that waits for its turn", 300, "bytes"),
        ("rate_bytes", "memory per key that waits for a rate", 300, "bytes"),
    ):
        yield Budget("G", what, results.figure(keys, field), most=most, unit=unit)
    yield Budget("G", "memory per waiting job / payload", results.figure(top, "memory_ratio"), most=1.2)


def _limits(results: Results) -> Iterator[Budget]:
    plain = "L / dayjob / sync / plain"
    for rules, what, least in (
        ("beside", "plain names beside a name with a limit / alone", 0.98),
        ("one key", "fair_by, one key / plain", 0.95),
        ("1000 keys", "fair_by, 1,000 keys / plain", 0.7),
    ):
        yield Budget("L", what, results.ratio(f"L / dayjob / sync / {rules}", plain, "rate"), least=least)
    pace = "P / dayjob / sync / 500 a second"
    yield Budget("P", "most starts in a second", results.figure(pace, "busiest"), most=510, unit="")


def _delivery(results: Results) -> Budget:
    wrong = [
        one.get("missing", 0) + one.get("twice", 0) + bool(one["error"])
        for one in results.records
        if one["system"] == "dayjob"
    ]
    return Budget(
        "all",
        "dayjob: runs in which a job was missing or ran twice",
        Figure.of([sum(map(bool, wrong))]),
        most=0,
        unit="",
    )
