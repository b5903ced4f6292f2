"""The jobs of the demo, their producer, and sample statistics of the past hours."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from dataclasses import dataclass
from typing import Any

from dayjob import retry
from dayjob.admin.client import Admin
from dayjob.cli import fake_data
from dayjob.enqueue.enqueuer import Enqueuer
from dayjob.errors import Dead, GiveBack, StoreError
from dayjob.job import Job
from dayjob.limits import Concurrency, Rate
from dayjob.pool import WorkerPool
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.ops import inspect, maintain

NAMESPACE = "demo"
CITIES = ("Paris", "Lagos", "Osaka", "Lima", "Oslo", "Pune")
SOURCES = ("acme", "globex", "initech", "umbrella")
#: How many newsletters wait in their paused queue.
_NEWSLETTERS = 25
#: Hours of sample statistics.
_HOURS = 3


@dataclass
class Shop:
    """The context of the demo's jobs."""

    currency: str = "EUR"


def build_pools(rng: random.Random) -> list[WorkerPool[Any]]:
    """Two pools: one for fast jobs, one for slow jobs."""
    return [_quick(rng), _slow(rng)]


def _quick(rng: random.Random) -> WorkerPool[Shop]:
    pool = WorkerPool(Shop, namespace=NAMESPACE, redis="embedded", concurrency=12, dead_count=500)

    @pool.job(priority=5)
    def resize_photo(photo: int, width: int = 800) -> None:  # noqa: ARG001 - it only pretends
        """Shrink a photo."""
        time.sleep(rng.uniform(0.005, 0.03))

    @pool.job
    async def fetch_weather(city: str) -> None:  # noqa: ARG001 - it only pretends
        """Fetch the weather."""
        await asyncio.sleep(rng.uniform(0.05, 0.3))

    @pool.job(max_fails=3, backoff=retry.exponential(2.0, cap=20.0), redact=["card"])
    def charge_card(ctx: Shop, order: int, amount: float, card: str = "") -> None:  # noqa: ARG001
        """Charge a card; the bank does not always answer."""
        time.sleep(rng.uniform(0.02, 0.1))
        _ask_the_bank(rng, order, amount, ctx.currency)

    @pool.job
    def rebuild_index(shop: str) -> None:  # noqa: ARG001 - it only pretends
        """Rebuild a shop's search index; unique while it waits."""
        time.sleep(rng.uniform(0.2, 0.6))

    @pool.job
    def send_reminder(customer: int) -> None:  # noqa: ARG001 - it only pretends
        """Remind a customer of a full cart."""
        time.sleep(0.01)

    @pool.job
    def send_newsletter(customer: int, api_token: str) -> None:  # noqa: ARG001 - it only pretends
        """Send the newsletter; its queue is paused until an operator resumes it."""
        time.sleep(0.05)

    @pool.job
    def sweep_carts() -> None:
        """Delete old carts."""
        time.sleep(0.05)

    pool.periodic("@every 10s", sweep_carts)
    _add_catalogue(pool, rng)
    _add_mailing(pool, rng)
    _add_limited(pool, rng)
    return pool


def _add_limited(pool: WorkerPool[Shop], rng: random.Random) -> None:
    """A rate, limits for each tenant, and tenants that take turns."""
    sms = pool.limit("sms", Rate(3, per=1, burst=3))
    crm = pool.limit("crm", Rate(2, per=1, burst=2), by="source")

    @pool.job(limits=[sms])
    def send_sms(customer: int) -> None:  # noqa: ARG001 - it only pretends
        """Send a text message; the provider takes three each second."""
        time.sleep(0.05)

    @pool.job(limits=[crm, Concurrency(1, by="source")])
    def sync_orders(order: int) -> None:  # noqa: ARG001 - it only pretends
        """Copy an order to the tenant's CRM: two each second for each tenant, one at a time."""
        time.sleep(rng.uniform(0.05, 0.2))

    @pool.job(fair_by="source", max_concurrency=3)
    def make_preview(page: int) -> None:  # noqa: ARG001 - it only pretends
        """Draw a page; tenants take turns, so that one with many pages does not delay the others."""
        time.sleep(rng.uniform(0.04, 0.08))


def _add_mailing(pool: WorkerPool[Shop], rng: random.Random) -> None:
    """A batch with a callback, an atomic job with its children, and a job that emits text."""

    @pool.job
    def mail_customer(customer: int) -> None:  # noqa: ARG001 - it only pretends
        """Send one mail of a mailing."""
        time.sleep(rng.uniform(0.05, 0.4))

    @pool.job
    def report_mailing(job: Job, shop: str) -> None:
        """The callback of a mailing that was sent."""
        job.checkin(f"{shop}: {job.batch.progress().total} mails were sent")

    @pool.job
    def send_mailing(shop: str) -> None:
        """Send mails to all customers of a shop, as a batch."""
        with pool.batch(on_success=report_mailing, args={"shop": shop}, description=f"mailing of {shop}"):
            mail_customer.enqueue_many([{"customer": number} for number in range(rng.randint(20, 60))])

    @pool.job
    def pack_item(order: int, item: int) -> None:  # noqa: ARG001 - it only pretends
        """Pack one item of an order."""
        time.sleep(0.05)

    @pool.job(atomic=True)
    def split_order(order: int, items: int) -> None:
        """Enqueue the items of an order: all of them when it completes, or none."""
        for item in range(items):
            pack_item.enqueue(order=order, item=item)

    @pool.job(timeout=120)
    async def describe_product(job: Job, product: str) -> None:
        """Write a description; its page shows the text while it is written."""
        for word in f"This is {product}. It is new, it is light, and it is yours for a song.".split():
            job.emit(f"{word} ")
            await asyncio.sleep(rng.uniform(0.2, 0.6))


def _add_catalogue(pool: WorkerPool[Shop], rng: random.Random) -> None:
    """The jobs of a workflow: a catalogue is read, its parts are priced, and all of it is published."""

    @pool.job
    def read_catalogue(shop: str) -> int:
        """Read the catalogue of a shop. Returns its rows."""
        time.sleep(rng.uniform(0.5, 2.0))
        return 1000 + len(shop)

    @pool.job(max_fails=1)
    def price_part(rows: int, part: int) -> int:
        """Price a part of a catalogue."""
        time.sleep(rng.uniform(0.5, 3.0))
        if rng.random() < 0.04:
            raise ValueError(f"part {part}: a price is missing")
        return rows // (part + 1)

    @pool.job
    def publish_catalogue(parts: list[int]) -> int:
        """Publish a catalogue."""
        time.sleep(0.5)
        return sum(parts)

    @pool.job
    def report_missing_prices(shop: str) -> None:  # noqa: ARG001 - it only pretends
        """Tell a shop that prices are missing."""
        time.sleep(0.1)

    @pool.job
    def import_catalogue(shop: str) -> None:
        """Start a workflow."""
        flow = pool.workflow(f"catalogue of {shop}", source=shop)
        rows = flow.add(read_catalogue, shop=shop)
        parts = [flow.add(price_part, rows=rows.result, part=part) for part in range(6)]
        flow.add(publish_catalogue, parts=[part.result for part in parts])
        flow.add(report_missing_prices, shop=shop, on_failure_of=parts)
        flow.start()


def _slow(rng: random.Random) -> WorkerPool[Any]:
    pool = WorkerPool(namespace=NAMESPACE, redis="embedded", concurrency=5)

    @pool.job(max_concurrency=2, timeout=300, keep=3600)
    def export_report(job: Job, rows: int) -> dict[str, int]:
        """Write a long report; two at once, over all pools."""
        for row in range(0, rows, 100):
            if job.checkin(f"row {row:,} of {rows:,}", done=row, total=rows):
                raise GiveBack("stopping")
            time.sleep(0.2)
        return {"rows": rows}

    @pool.job(timeout=120)
    async def transcode_video(job: Job, minutes: int) -> None:
        """Transcode a video, minute by minute."""
        for minute in range(minutes):
            job.checkin(f"minute {minute} of {minutes}", done=minute, total=minutes)
            await asyncio.sleep(rng.uniform(0.5, 1.0))

    @pool.job
    def close_books(day: str = "yesterday") -> None:  # noqa: ARG001 - it only pretends
        """Close the books of a day."""
        time.sleep(1)

    pool.periodic("30 2 * * *", close_books, timezone="Europe/Paris", name="nightly books")
    pool.periodic(
        "0 9 * * 1-5", export_report, {"rows": 5000}, timezone="America/New_York", name="weekday report"
    )
    return pool


def _ask_the_bank(rng: random.Random, order: int, amount: float, currency: str) -> None:
    luck = rng.random()
    if luck < 0.22:
        raise ConnectionError(f"the bank did not answer for order {order}")
    if luck < 0.26:
        raise TimeoutError(f"no answer within 5 s for {amount:.2f} {currency}")
    if luck < 0.28:
        raise Dead(f"order {order}: the card was reported stolen")


# The producer.


def produce(pool: WorkerPool[Any], end: threading.Event) -> None:
    """Enqueue fake jobs until the demo ends."""
    rng = random.Random()
    enqueuer = pool.enqueuer
    # The slow pool's jobs are enqueued by name: a producer needs no job code.
    plain = Enqueuer(NAMESPACE, redis="embedded")
    number = 0
    while not end.wait(0.2):
        number += 1
        # The pools log an outage of the server; the producer only waits.
        with contextlib.suppress(StoreError):
            _put(enqueuer, plain, rng, number)
    plain.close()


def _put(enqueuer: Enqueuer, plain: Enqueuer, rng: random.Random, number: int) -> None:
    source = rng.choice(SOURCES)
    photos = [{"photo": number * 10 + i} for i in range(rng.randint(1, 6))]
    enqueuer.sourced(source).enqueue_many("resize_photo", photos)
    enqueuer.enqueue("fetch_weather", city=rng.choice(CITIES))
    if number % 2 == 0:
        enqueuer.sourced(source).enqueue(
            "charge_card",
            order=1000 + number,
            amount=round(rng.uniform(5, 500), 2),
            card="4111 1111 1111 1111",
        )
    if number % 5 == 0:
        enqueuer.enqueue_unique("rebuild_index", shop=source)
        enqueuer.sourced(source).enqueue_in("send_reminder", rng.uniform(3, 90), customer=number)
    if number % 40 == 3:
        enqueuer.enqueue("import_catalogue", shop=source)
    if number % 40 == 23:
        enqueuer.enqueue("send_mailing", shop=source)
    if number % 10 == 7:
        enqueuer.enqueue("split_order", order=number, items=rng.randint(2, 5))
        enqueuer.enqueue("describe_product", product=rng.choice(("a lamp", "a bag", "a watch")))
    if number % 25 == 5:
        plain.sourced(source).enqueue("export_report", rows=rng.randint(20, 60) * 100)
    if number % 30 == 10:
        plain.sourced(source).enqueue("transcode_video", minutes=rng.randint(8, 30))
    _put_limited(enqueuer, source, number)
    if number % 40 == 0:
        enqueuer.enqueue_many("fetch_weather", [{"city": city} for city in CITIES * 20])


def _put_limited(enqueuer: Enqueuer, source: str, number: int) -> None:
    """Jobs with limits, some of them in bursts that have to wait."""
    enqueuer.sourced(source).enqueue("make_preview", page=number)
    if number % 5 == 1:
        enqueuer.sourced(source).enqueue("sync_orders", order=number)
    if number % 10 == 0:
        enqueuer.enqueue_many("send_sms", [{"customer": number + n} for n in range(5)])
    if number % 40 == 15:
        enqueuer.sourced(SOURCES[0]).enqueue_many("sync_orders", [{"order": number + n} for n in range(12)])
    if number % 80 == 35:
        enqueuer.sourced(SOURCES[1]).enqueue_many("make_preview", [{"page": n} for n in range(120)])


# The past.


def set_the_stage(link: Link, keys: Keys, admin: Admin) -> None:
    """Once: hours of statistics, past failures, delayed jobs and a paused queue."""
    if link.run(maintain.known_jobs(keys)):
        return
    rng = random.Random()
    now = link.run(inspect.now())
    for state, count in (("scheduled", 12), ("retry", 8), ("dead", 30)):
        fake_data.fill_set(link, keys, state, count, now, rng)
    fake_data.fill_hours(link, keys, _HOURS, now, rng)
    admin.acting("dana@example.com").pause("send_newsletter", force=True)
    letters = [{"customer": 100 + n, "api_token": f"t-{rng.randbytes(6).hex()}"} for n in range(_NEWSLETTERS)]
    enqueuer = Enqueuer(NAMESPACE, redis="embedded")
    enqueuer.enqueue_many("send_newsletter", letters)
    enqueuer.close()
