"""`dayjob fake-data`: sample jobs and statistics, to try the console with."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import msgspec

from dayjob.cli import console, target
from dayjob.job import new_id
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.op import Arg, Op
from dayjob.store.ops import figures, inspect, maintain, produce, rollups
from dayjob.text import counted

#: Job name to its possible arguments: the jobs of the demo, so that its pools can run them.
ARGUMENTS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "resize_photo": lambda rng: {"photo": rng.randint(1, 99_999), "width": rng.choice((400, 800, 1600))},
    "fetch_weather": lambda rng: {"city": rng.choice(("Paris", "Lagos", "Osaka", "Lima", "Oslo", "Pune"))},
    "charge_card": lambda rng: {"order": rng.randint(1000, 9999), "amount": rng.randint(500, 50_000) / 100},
    "export_report": lambda rng: {"rows": rng.randint(10, 60) * 100},
    "rebuild_index": lambda rng: {"shop": f"shop-{rng.randint(1, 9)}"},
    "send_reminder": lambda rng: {"customer": rng.randint(1, 999)},
}
NAMES = tuple(ARGUMENTS)
_SOURCES = ("acme", "globex", "initech", "umbrella")
_ERRORS = (
    "ConnectionError: the bank did not answer for order {n}",
    "TimeoutError: no answer within {n} s",
    "KeyError: 'customer_{n}'",
    "ValueError: {n} is not a postcode",
)
#: Percentage of the jobs that are scheduled, in retry and dead; the others wait.
_SHARES = (("scheduled", 15), ("retry", 10), ("dead", 15))
_BATCH = 100


@click.command(epilog="Example: dayjob fake-data --jobs 5000 --redis embedded --namespace demo")
@click.option("--jobs", "number", type=click.IntRange(1, 1_000_000), default=500, show_default=True)
@click.option(
    "--hours", type=click.IntRange(0, 72), default=3, show_default=True, help="Hours of sample statistics."
)
@console.yes_option
@target.options
@target.app_option
def fake_data(number: int, hours: int, yes: bool, redis: str | None, namespace: str) -> None:
    """Fill a namespace with sample statistics and jobs: waiting, scheduled, in retry and dead.

    Asks for confirmation if the namespace is in use.
    """
    with target.connected(redis, namespace) as (link, keys):
        known = link.run(maintain.known_jobs(keys))
        if known:
            console.confirm(f"{namespace!r} has {counted(len(known), 'queue')}. Add sample jobs?", yes=yes)
        rng = random.Random()
        now = link.run(inspect.now())
        counts = {state: number * share // 100 for state, share in _SHARES}
        for state, count in counts.items():
            fill_set(link, keys, state, count, now, rng)
        waiting = number - sum(counts.values())
        for name, count in zip(NAMES, _split(waiting, len(NAMES), rng), strict=True):
            _fill_queue(link, keys, name, count, now, rng)
        fill_hours(link, keys, hours, now, rng)
    click.echo(f"{counted(number, 'job')} and {counted(hours, 'hour')} of statistics in {namespace!r}.")


def _split(number: int, parts: int, rng: random.Random) -> list[int]:
    cuts = sorted(rng.randint(0, number) for _ in range(parts - 1))
    return [high - low for low, high in zip([0, *cuts], [*cuts, number], strict=True)]


def _payload(name: str, at: float, rng: random.Random, extras: dict[str, Any] | None = None) -> bytes:
    fields = {"source": rng.choice(_SOURCES), **(extras or {})}
    return codec.write(codec.quoted(name), new_id(), at, msgspec.json.encode(ARGUMENTS[name](rng)), fields)


def _fill_queue(link: Link, keys: Keys, name: str, count: int, now: float, rng: random.Random) -> None:
    ages = sorted((rng.uniform(0, 900) for _ in range(count)), reverse=True)
    for first in range(0, count, _BATCH):
        payloads = [_payload(name, now - age, rng) for age in ages[first : first + _BATCH]]
        link.run(produce.enqueue(keys, produce.Slot(new_id(), 1), name, payloads, introduce=True))


def fill_set(link: Link, keys: Keys, state: str, count: int, now: float, rng: random.Random) -> None:
    """Store sample jobs in scheduled, retry or dead."""
    source = {"scheduled": keys.scheduled, "retry": keys.retry, "dead": keys.dead}[state]
    for first in range(0, count, _BATCH):
        flat: list[Arg] = []
        for _ in range(min(_BATCH, count - first)):
            past = now - rng.expovariate(1 / 7200)
            moment = past if state == "dead" else now + rng.uniform(60, 7200)
            extras = None if state == "scheduled" else _failure(past, rng)
            flat += (f"{moment:.3f}", _payload(rng.choice(NAMES), past - 5, rng, extras))
        link.run(Op("ZADD", (source,), flat, int))
    link.run(Op("SADD", (keys.known_jobs,), NAMES, int))


def _failure(at: float, rng: random.Random) -> dict[str, Any]:
    error = rng.choice(_ERRORS).format(n=rng.randint(1, 500))
    trace = f'Traceback (most recent call last):\n  File "shop/jobs.py", line {rng.randint(10, 99)}, in run\n{error}\n'
    return {
        "fails": rng.randint(1, 4), "err": error, "failed_at": int(at), "attempt": f"fake/{new_id()}", "trace": trace,
    }  # fmt: skip


def fill_hours(link: Link, keys: Keys, hours: int, now: float, rng: random.Random) -> None:
    """Write sample statistics of some hours, and roll them up as the leader would have."""
    last = int(now // 60)
    first = last - hours * 60
    totals: Counter[str] = Counter()
    for minute in range(first, last):
        totals += _fill_minute(link, keys, minute, rng)
        # A span that a leader has already rolled up would hide these statistics.
        link.run(Op("DEL", (keys.counts(1, minute), keys.times(1, minute)), (), int))
    for counter, number in totals.items():
        link.run(Op("HINCRBY", (keys.totals,), (counter, number), int))
    for span in rollups.FINER:
        for start in range(first + -first % span, last - span + 1, span):
            walk(link, rollups.roll_up(keys, span, start, partial(figures.minutes, keys)))


def _fill_minute(link: Link, keys: Keys, minute: int, rng: random.Random) -> Counter[str]:
    """Write the statistics of one minute, and return what they add to the totals."""
    made: dict[str, int] = {"|q": 1}
    totals: Counter[str] = Counter()
    busy = 1.3 + math.sin(minute / 25)
    for place, name in enumerate(NAMES):
        ran = 0
        for _ in range(3):
            bucket = max(0, round(rng.gauss(12 + 2 * place, 3)))
            count = round(rng.randint(5, 40) * busy)
            ran += count
            # Two of the draws may have the same bucket.
            made[f"{name}|r{bucket}"] = made[f"{name}|w{bucket + 4}"] = count + made.get(
                f"{name}|r{bucket}", 0
            )
        failed = made[f"{name}|f"] = round(ran * (0.2 if name == "charge_card" else 0.01) * rng.random())
        totals += Counter({f"done:{name}": ran - failed, f"failed:{name}": failed, f"retried:{name}": failed})
        made[f"{name}|o"] = ran
        made[f"{name}|q"] = rng.randint(0, 30)
    made[f"|x{rng.randint(2, 6)}"] = rng.randint(10, 60)
    flat: list[Arg] = [word for pair in made.items() for word in pair]
    link.run(Op("HSET", (keys.minute(minute),), flat, int))
    link.run(Op("EXPIRE", (keys.minute(minute),), (figures.KEPT_SECONDS,), int))
    return totals
