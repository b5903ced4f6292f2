"""What is measured: the cases of each form. Cases of one group run in turn, in a new order each round."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import group_cases
import load
import path_cases
from systems import GO, OTHERS, PYTHON, SYSTEMS, System
from workloads import Case

DAYJOB, BARE, RAW, TASKS = (SYSTEMS[name] for name in ("dayjob", "bare", "raw", "tasks"))
GOCRAFT = SYSTEMS["gocraft"]
PEERS = (*GO, *PYTHON, *OTHERS)
MILLISECOND = 0.001
#: The systems that run in each round of the full form.
FAST = ("dayjob", "gocraft", "asynq", "sidekiq", "bullmq", "dramatiq", "huey")


@dataclass(frozen=True)
class Group:
    """Cases that belong together."""

    title: str
    cases: tuple[Case, ...]
    #: All at once, each on a server of its own: for counts that do not depend on timing.
    together: bool = False
    #: How often each case runs in a round: several times where budgets compare figures that lie close together.
    turns: int = 1
    #: In how many rounds it runs; 0 for all. Fewer for slow systems and for figures that hardly differ between rounds.
    rounds: int = 0


def plan(form: str) -> list[Group]:
    """The groups of a form: tiny (a test of the driver), quick or full."""
    return {"tiny": tiny, "quick": quick, "full": full}[form]()


def _drain(system: System, config: str, **changes: object) -> Case:
    how = system.config(config)
    case = Case("A", system, config, count=how.jobs, concurrency=how.concurrency)
    return replace(case, **changes)


def _own_drains(count: int) -> Iterable[Case]:
    yield _drain(DAYJOB, "sync", count=count)
    yield _drain(DAYJOB, "async", count=count)
    yield _drain(DAYJOB, "sync", count=count, delay=MILLISECOND, variant="1 ms")
    yield _drain(BARE, "loop", count=count)


def _more_drains(count: int) -> Iterable[Case]:
    yield _drain(DAYJOB, "async", count=count, delay=MILLISECOND, variant="1 ms")
    for config in ("sync", "async"):
        yield _drain(DAYJOB, config, count=count, processes=2, variant="2 processes")
        yield _drain(DAYJOB, config, count=count, aof=True, variant="AOF")


def _enqueues(
    count: int, bulk: int, pins: tuple[str, ...], systems: Iterable[tuple[System, str]]
) -> Iterable[Case]:
    for system, config in systems:
        for pin in pins:
            yield Case("B", system, config, f"single, {pin}", count=count, pin=pin)
            if system.bulk:
                size = bulk if system.kind == "own" else bulk // 3
                yield Case("B", system, config, f"bulk, {pin}", count=size, mode="bulk", pin=pin)


def _pickup(system: System, config: str, count: int, gap: float = 0.02, variant: str = "20 ms apart") -> Case:
    return Case("C", system, config, variant, count=count, gap=gap)


def _idle(system: System, config: str, seconds: float, **changes: object) -> Case:
    case = Case("D", system, config, "1 pool", names=20, concurrency=25, seconds=seconds, rest=0.0)
    return replace(case, **changes)


def _own_idles(seconds: float, rest: float = 0.0) -> Iterable[Case]:
    yield _idle(DAYJOB, "sync", seconds, rest=rest)
    yield _idle(DAYJOB, "sync", seconds, rest=rest, names=200, variant="1 pool, 200 names")
    yield _idle(DAYJOB, "sync", seconds, rest=rest, pools=100, variant="100 pools")


def _mixed(system: System, config: str, concurrency: int, count: int) -> Case:
    return Case(
        "F", system, config, f"{concurrency} at once", count=count, concurrency=concurrency, sleep=0.01
    )


def level(waiting: int) -> Case:
    more = {"program": "growth.py", "arguments": (waiting,)}
    return Case("G ops", DAYJOB, "ops", f"{waiting:,} waiting", count=waiting, more=more)


def _keys(waiting: int, seen: int) -> Case:
    more = {"program": "key_growth.py", "arguments": (waiting, seen)}
    return Case("G keys", DAYJOB, "ops", f"{waiting:,} keys wait, {seen:,} seen", count=waiting, more=more)


def _price(count: int) -> Case:
    return Case("H", DAYJOB, "attempt", count=count, more={"program": "price.py", "arguments": (count,)})


def _first(system: System) -> str:
    return system.lively or system.configs[0].name


def tiny() -> list[Group]:
    own = [
        _drain(system, config, count=300)
        for system, config in ((DAYJOB, "sync"), (DAYJOB, "async"), (BARE, "loop"))
    ]
    own += [_drain(DAYJOB, "sync", count=300, delay=MILLISECOND, variant="1 ms")]
    own += [
        replace(_pickup(system, config, 5), rest=0.1)
        for system, config in ((DAYJOB, "sync"), (RAW, "redis-py"))
    ]
    own += [
        _idle(DAYJOB, "sync", 0.5),
        _mixed(DAYJOB, "async", 20, 100),
        level(600),
        _price(200),
        _keys(600, 2000),
    ]
    own += [*_ruled(300), *(case for case in _paced(60) if case.system is DAYJOB), *load.tiny()]
    return [
        Group("A to H", (*own, *path_cases.tiny(), *group_cases.tiny()), together=True),
        Group("B", tuple(_enqueues(50, 2000, ("same",), [(DAYJOB, "sync"), (RAW, "redis-py")]))),
    ]


def quick() -> list[Group]:
    peers = [(system, config) for system in PEERS for config in system.configs if config.quick]
    drains = [_drain(system, config.name, count=config.quick) for system, config in peers]
    singles = [
        (DAYJOB, "sync"),
        (DAYJOB, "async"),
        (RAW, "redis-py"),
        (RAW, "async"),
        (SYSTEMS["gocraft"], "usual"),
    ]
    pickups = [_pickup(DAYJOB, "sync", 100), _pickup(RAW, "redis-py", 100)]
    pickups += [_pickup(system, config.name, 40) for system, config in peers]
    idles = [*_own_idles(6.0), *(_idle(system, config.name, 5.0) for system, config in peers)]
    return [
        Group("A", (*_own_drains(60_000), *(case for case in drains if case.system is GOCRAFT)), turns=2),
        Group("A", tuple(case for case in drains if case.system is not GOCRAFT)),
        Group("B", tuple(_enqueues(3000, 30_000, ("same",), singles))),
        Group("C", tuple(pickups)),
        Group("D", tuple(idles), together=True),
        Group("L", tuple(_ruled(60_000)), turns=2),
        Group("paths", tuple(path_cases.cases(0.5, peers=False))),
        Group("paths", (*path_cases.enqueues(2000), *path_cases.starts())),
        Group("P", tuple(case for case in _paced(1500) if case.system.name != "celery")),
        Group(
            "groups",
            (*group_cases.cases(quick=True, peers=False), group_cases.call(100), group_cases.children()),
        ),
    ]


def full() -> list[Group]:
    drains = [_drain(system, config.name) for system in PEERS for config in system.configs]
    gocraft = [case for case in drains if case.system is GOCRAFT]
    slower = [
        _drain(SYSTEMS[name], config, variant=variant, delay=delay, aof=aof, count=count)
        for name, config, count in (("gocraft", "usual", 20_000), ("dramatiq", "usual", 5000))
        for variant, delay, aof in (("1 ms", MILLISECOND, False), ("AOF", 0.0, True))
    ]
    senders = [(DAYJOB, "sync"), (DAYJOB, "async"), (RAW, "redis-py"), (RAW, "async")]
    peers = [(system, system.configs[0].name) for system in PEERS] + [(SYSTEMS["taskiq"], "stream")]
    own_pickups = [_pickup(DAYJOB, "sync", 200), _pickup(RAW, "redis-py", 200)]
    pickups = [_pickup(DAYJOB, "async", 200), *(_pickup(system, _first(system), 100) for system in PEERS)]
    pickups += [_pickup(SYSTEMS["taskiq"], "stream", 100)]
    idles = [*_own_idles(120.0, rest=60.0), *(_idle(system, _first(system), 12.0) for system in PEERS)]
    idles += [_idle(SYSTEMS["taskiq"], "stream", 12.0)]
    mixed = [_mixed(DAYJOB, "sync", 100, 30_000), _mixed(DAYJOB, "async", 1000, 100_000)]
    mixed += [_mixed(TASKS, "loop", 1000, 100_000)]
    other_mixed = [
        _mixed(SYSTEMS[name], "usual", 100, 10_000) for name in ("gocraft", "asynq", "dramatiq", "bullmq")
    ]
    names = [
        replace(_drain(DAYJOB, "sync", names=names, variant=f"{names} names"), workload="G")
        for names in (5, 50, 200)
    ]
    pools = [
        replace(_drain(DAYJOB, "sync", pools=many, processes=2, variant=f"{many} pools"), workload="G")
        for many in (2, 10, 50)
    ]
    paths = list(path_cases.cases())
    return [
        # gocraft/work in the same turns as dayjob, because a budget compares the two.
        Group("A", (*_own_drains(100_000), *gocraft), turns=3),
        Group("A", tuple(case for case in drains if case.system is not GOCRAFT and _is_fast(case))),
        Group("A", (*_more_drains(100_000), *slower), rounds=2),
        Group("A", tuple(case for case in drains if not _is_fast(case)), rounds=1),
        Group("B", tuple(_enqueues(3000, 90_000, ("scheduler", "same"), senders)), turns=2),
        Group("B", tuple(_enqueues(3000, 30_000, ("same",), peers)), rounds=1),
        Group("C", tuple(own_pickups), turns=2),
        Group("C", tuple(case for case in pickups if _is_fast(case))),
        Group("C", tuple(case for case in pickups if not _is_fast(case)), rounds=1),
        *(Group("D", tuple(idles[at : at + 6]), together=True, rounds=1) for at in range(0, len(idles), 6)),
        Group("F", tuple(mixed)),
        Group("F", tuple(other_mixed), rounds=1),
        Group("G", tuple(names), turns=2),
        Group("G", tuple(pools), rounds=2),
        Group("G", tuple(level(many) for many in (1000, 100_000, 1_000_000))),
        Group("G", (level(10_000_000), _keys(100_000, 1_000_000)), rounds=1),
        Group("H", (_price(20_000),)),
        Group("L", tuple(_ruled(100_000)), turns=2),
        Group("paths", tuple(case for case in paths if case.system is DAYJOB), turns=2),
        Group("paths", tuple(case for case in paths if case.system is not DAYJOB), rounds=1),
        Group("paths", (*path_cases.enqueues(3000), *path_cases.starts()), turns=2),
        Group("load", tuple(load.cases())),
        Group("P", tuple(_paced(2000)), rounds=1),
        Group(
            "groups",
            (*group_cases.cases(peers=False), group_cases.call(), group_cases.children()),
            turns=2,
        ),
        Group("groups", tuple(case for case in group_cases.cases() if case.system is not DAYJOB), rounds=1),
        Group("limits", tuple(_limits()), rounds=1),
    ]


def _is_fast(case: Case) -> bool:
    """Whether a system is measured in each round. The others run a few hundred or thousand jobs a second."""
    return case.system.name in FAST


def _ruled(count: int) -> Iterable[Case]:
    """The same drain under each kind of limit. "beside": the pool also has a name with a limit, without jobs.

    The keys are those of each name.
    """
    for rules in (
        "plain",
        "beside",
        "rate",
        "concurrency",
        "one key",
        "1000 keys",
        "1000 keys with a rate",
        "1000 keys with a limit",
    ):
        # Names with rate limits are not prefetched, and take much longer.
        many = count // 10 if "rate" in rules else count
        yield replace(_drain(DAYJOB, "sync", count=many, variant=rules, rules=rules), workload="L")


def _paced(count: int) -> Iterable[Case]:
    for system, config in (
        (DAYJOB, "sync"),
        (DAYJOB, "async"),
        (SYSTEMS["bullmq"], "usual"),
        (SYSTEMS["celery"], "threads"),
    ):
        yield Case("P", system, config, "500 a second", count=count, names=1, rules="paced")


def _limits() -> Iterable[Case]:
    for label, words in (
        ("LPUSH, 1 client", ("-t", "lpush", "-c", "1", "-n", "20000")),
        ("LPUSH, 50 clients", ("-t", "lpush", "-c", "50", "-n", "100000")),
        ("LPUSH, 50 clients, pipelines of 64", ("-t", "lpush", "-c", "50", "-P", "64", "-n", "1000000")),
    ):
        for pin in ("scheduler", "same"):
            variant = f"{label}, {pin}"
            yield Case("limits", RAW, "redis-benchmark", variant, pin=pin, more={"arguments": words})
