# ruff: noqa: INP001, ARG001, E402 - a program, not a module; its jobs only pretend
"""Makes the pictures of the console in docs/images: `python scripts/screenshots.py [FOLDER] [--all]`.

A real server, a pool at work on an invented shop, the console, and a browser. With --all every page, light, dark and small.
"""

from __future__ import annotations

import asyncio
import contextlib
import linecache
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Literal
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

import msgspec

from dayjob import Admin, Concurrency, Job, Rate, WorkerPool, retry
from dayjob.cli import fake_data, target
from dayjob.job import new_id
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import Op
from server import running, wait_until
from web.browser import Window, launched, window
from web.conftest import RunningConsole, running_console

NAMESPACE = "shop"
SHOP = "shop/jobs.py"
#: What the documentation shows: file name and address.
SHOWN = {
    "home": "/", "failures": "/failures", "metrics": "/metrics?hours=24", "job": "job", "metric": "/metrics?name=charge_card",
    "calendar": "/calendar",
}  # fmt: skip
EVERY = {
    **SHOWN, "queues": "/queues", "dead": "/dead_jobs", "queue": "/queue?name=send_mail", "busy": "/busy_workers", "pools": "/worker_pools", "retry": "/retry_jobs",
    "scheduled": "/scheduled_jobs", "jobs": "/jobs", "done": "/done_jobs", "periodic": "/periodic", "redis": "/redis", "schedule": "/schedule?name=sweep_carts+%40every+20s",
    "timeline": "/timeline", "audit": "/audit", "settings": "/settings", "enqueue": "/enqueue", "form": "/enqueue?name=send_mail",
    "broken": "/broken", "nothing": "/job?id=0192-gone", "metrics1": "/metrics", "running": "/jobs?state=running",
    "history": "/history", "slowest": "/history?sort=-ran", "sources": "/sources", "source": "/source?source=acme", "limits": "/limits", "payloads": "/payloads",
    "search": "/search?q=charge", "api": "/api", "batches": "/batches", "batch": "batch", "workflows": "/workflows", "workflow": "workflow", "keys": "/queue?name=pick_parcel", "waiting": "/queue?name=sync_stock", "stray": "/queue?name=old_importer", "deadjob": "deadjob", "runningjob": "runningjob", "died": "/timeline?kind=died", "nosuch": "/queue?name=nothing", "calendar24": "/calendar?hours=24", "pool": "pool", "group": "group", "finished": "finished",
}  # fmt: skip


PAST = (
    ("sync_stock", "TimeoutError: the warehouse gave no answer within {n} s", 64),
    ("charge_card", "ConnectionError: the bank did not answer for order {n}", 41),
    ("send_mail", "SMTPRecipientsRefused: 550 mailbox user{n}@example.com unavailable", 23),
    ("export_report", "KeyError: 'customer_{n}'", 9),
    ("send_mail", "UnicodeEncodeError: 'ascii' codec can't encode character '\\xe9' in position {n}", 3),
)


class CardRefused(Exception):
    """The bank said no."""


def placed(fn: FunctionType) -> FunctionType:
    """A function as if it stood in a file of the shop, for what tracebacks show."""
    fn.__code__ = fn.__code__.replace(co_filename=SHOP)
    linecache.cache[SHOP] = (0, None, Path(__file__).read_text("utf-8").splitlines(keepends=True), SHOP)
    return fn


@placed
def ask_the_bank(order: int) -> None:
    """Something that fails deeper than the handler."""
    if order % 3 == 0:
        raise ConnectionError(f"the bank did not answer within 30 s for order {order}")
    raise CardRefused(f"card of order {order} was refused: insufficient funds")


def build(url: str, end: threading.Event) -> WorkerPool:
    """The pool of an invented shop."""
    pool = WorkerPool(namespace=NAMESPACE, redis=url, concurrency=14, tag="v41")
    rng = random.Random(4)

    @pool.job(priority=5)
    def resize_photo(photo: int, width: int = 640) -> None:
        """Make a photo smaller."""
        end.wait(rng.uniform(0.002, 0.03))

    @pool.job(max_fails=3, timeout=60, backoff=retry.exponential(600.0, cap=7200.0), redact=["card"])
    @placed
    def charge_card(order: int, card: str, currency: Literal["EUR", "USD"] = "EUR") -> None:
        """Ask the bank for the money of an order."""
        end.wait(rng.uniform(0.02, 0.2))
        if rng.random() < 0.4:
            ask_the_bank(order)

    @pool.job(timeout=3600)
    def export_report(job: Job, rows: int, month: str = "2026-10") -> None:
        """Write a report of many rows."""
        for row in range(rng.randint(0, rows), rows):
            if job.checkin(f"row {row:,} of {rows:,}", done=row, total=rows) or end.wait(0.5):
                return

    @pool.job(max_concurrency=2, timeout=900)
    def rebuild_index(shop: str) -> None:
        """Build the search index of a shop anew."""
        end.wait(600)

    @pool.job
    async def fetch_weather(city: str) -> None:
        """Ask for the weather of a city."""
        await asyncio.sleep(rng.uniform(0.05, 0.4))

    @pool.job(keep=86400)
    def send_mail(
        to: str, subject: str = "Your order", urgent: bool = False, tags: list[str] | None = None
    ) -> None:
        """Send one mail to a customer."""
        end.wait(rng.uniform(0.01, 0.1))

    @pool.job
    def sweep_carts() -> None:
        """Forget carts that nobody bought."""

    @pool.job(limits=[Rate(20, per=60), Concurrency(1, by="tenant")], fair_by="tenant")
    def pick_parcel(tenant: str, order: int) -> None:
        """Have a parcel picked."""
        end.wait(rng.uniform(0.5, 2.0))

    @pool.job(max_fails=1)
    def import_page(page: int) -> int:
        """Read one page of a catalogue."""
        end.wait(rng.uniform(0.1, 1.0))
        if page == 3:
            raise ValueError("page 3 is not valid XML")
        return page

    @pool.job
    def publish(pages: list[int] | None = None) -> None:
        """Show the new catalogue."""
        end.wait(0.2)

    pool.periodic("*/15 9-17 * * 1-5", fetch_weather, {"city": "Paris"}, timezone="Europe/Paris")
    pool.periodic("@every 20s", sweep_carts)
    pool.periodic("0 3 1 * *", export_report, {"rows": 90000})
    return pool


def invent(link: Link, keys: Keys) -> None:
    """What happened before: figures, and jobs that failed in the last days."""
    rng = random.Random(11)
    now = time.time()
    fake_data.fill_hours(link, keys, 72, now, rng)
    for place, (name, error, count) in enumerate(PAST):
        for _ in range(count):
            at = now - rng.expovariate(1 / (3600 * (1 + 6 * place)))
            args = {"order": rng.randint(1000, 9999), "email": f"user{rng.randint(1, 99)}@example.com"}
            text = error.format(n=rng.randint(1, 500))
            told = {
                "fails": 4, "err": text, "failed_at": int(at), "attempt": f"past/{new_id()}",
                "trace": f'Traceback (most recent call last):\n  File "shop/jobs.py", line 31, in {name}\n{text}\n',
            }  # fmt: skip
            payload = codec.write(codec.quoted(name), new_id(), at - 900, msgspec.json.encode(args), told)
            link.run(Op("ZADD", (keys.dead,), (f"{at:.3f}", payload), int))
        link.run(Op("SADD", (keys.known_jobs,), (name,), int))
    head = msgspec.json.encode({"at": int(now * 1000), "where": "queue send_mail", "why": "it is not JSON"})
    link.run(
        Op("RPUSH", (keys.broken,), (head + b'\n{"name": "send_mail", "args": {"to": "user7@exam',), int)
    )
    for n in range(40):
        args = {"sku": f"A-{n:04}", "warehouse": rng.choice(("lyon", "graz"))}
        payload = codec.write(
            codec.quoted("sync_stock"), new_id(), now - 840 + n, msgspec.json.encode(args), {}
        )
        link.run(Op("LPUSH", (keys.queue("sync_stock"),), (payload,), int))


def fill(pool: WorkerPool, admin: Admin) -> None:
    """Work that is at every stage."""
    put = pool.enqueuer
    for shop in ("north", "south", "east", "west"):
        put.enqueue("rebuild_index", shop=shop)
    for rows in (90_000, 1200, 400):
        put.using(source="acme").enqueue("export_report", rows=rows)
    put.enqueue_many("charge_card", [{"order": 4000 + n, "card": "4111"} for n in range(60)])
    for n in range(12):
        put.using(source=n % 3).enqueue_in(
            "send_mail", 300 + 900 * n, to=f"user{n}@example.com", subject="Reminder"
        )
    put.enqueue_many("send_mail", [{"to": f"user{n}@example.com"} for n in range(30)])
    for n in range(7):
        admin.enqueue("old_importer", {"file": f"/data/import-{n}.csv"})
    admin.pause("sync_stock", force=True)
    for n in range(90):
        tenant = ("acme", "acme", "acme", "globex", "initech")[n % 5]
        put.enqueue("pick_parcel", tenant=tenant, order=n)
    fill_groups(pool)


def fill_groups(pool: WorkerPool) -> None:
    """A batch that runs, and workflows that run and have failed."""
    page, publish = pool.find("import_page"), pool.find("publish")
    with pool.batch(on_success=publish, description="Catalogue of November"):
        pool.find("pick_parcel").enqueue_many([{"tenant": "acme", "order": n} for n in range(40)])
        page.enqueue_many([{"page": n} for n in range(4, 24)])
    for last in (2, 4):
        flow = pool.workflow("catalogue")
        pages = [flow.add(page, page=n) for n in range(1, last + 1)]
        flow.add(publish, pages=[one.result for one in pages])
        flow.start()


def trickle(pool: WorkerPool, end: threading.Event) -> None:
    """Work that goes on coming in."""
    rng = random.Random(7)
    while not end.wait(0.5):
        pool.enqueuer.enqueue_many(
            "resize_photo", [{"photo": rng.randint(1, 9999)} for _ in range(rng.randint(1, 5))]
        )
        pool.enqueuer.using(source=rng.choice(("acme", "globex", "initech"))).enqueue(
            "fetch_weather", city=rng.choice(("Paris", "Lagos", "Osaka", "Lima"))
        )


@contextlib.contextmanager
def stage() -> Iterator[RunningConsole]:
    """The shop at work, and its console."""
    end = threading.Event()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as server:
        with target.connected(server.url, NAMESPACE) as (link, keys):
            invent(link, keys)
        pool = build(server.url, end)
        with running_console(server.url, NAMESPACE) as console:
            admin = Admin(NAMESPACE, redis=server.url, actor="ada@shop")
            pool.start()
            trickling = threading.Thread(target=trickle, args=(pool, end))
            try:
                trickling.start()
                fill(pool, admin)
                wait_until(lambda: len(admin.busy()) >= 5, 20)
                wait_until(lambda: admin.jobs("retry", where="name=charge_card age<5m").jobs, 20)
                admin.retry(admin.jobs("dead", where="name=sync_stock").jobs[0])
                admin.delete(admin.jobs("dead", where="name=send_mail").jobs[0])
                yield console
            finally:
                end.set()
                trickling.join()
                pool.stop(timeout=1)
                pool.enqueuer.close()
                admin.close()


def shoot(tab: Window, console: RunningConsole, address: str, file: Path, *, whole: bool) -> None:
    """A picture of one page, once it is drawn."""
    tab.open(_address(console, address))
    tab.page.screenshot(path=file, full_page=whole)


def _address(console: RunningConsole, wanted: str) -> str:
    """The address of a page; a word without a slash is a page of something that differs with each run."""
    admin = console.admin
    if wanted == "job":
        failed = admin.jobs("retry", where="name=charge_card age<5m").jobs[0]
        return f"/job?id={failed.id}&name={failed.name}"
    if wanted == "finished":
        done = admin.history("fetch_weather", outcome="completed", limit=1).records[0]
        return f"/job?id={done.id}&name={done.name}"
    if wanted == "group":
        group = next(one for one in admin.failures().groups if one.name == "charge_card")
        return f"/failure?{urlencode({'name': group.name, 'kind': group.kind})}"
    if wanted == "deadjob":
        return f"/job?id={admin.jobs('dead', where='name=charge_card').jobs[0].id}&name=charge_card"
    if wanted == "runningjob":
        return f"/job?id={admin.jobs('running', where='name=export_report').jobs[0].id}&name=export_report"
    if wanted == "batch":
        return f"/batch?id={admin.batches().batches[0].id}"
    if wanted == "workflow":
        return f"/workflow?id={admin.workflows().workflows[0].id}"
    return f"/pool?id={admin.pools().pools[0].id}" if wanted == "pool" else wanted


def main(folder: Path, *, every: bool) -> None:
    """Make the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with stage() as console, launched() as browser:
        began = time.monotonic()
        with window(
            browser, console.url, viewport={"width": 1200, "height": 760}, color_scheme="light"
        ) as tab:
            for name, address in (EVERY if every else SHOWN).items():
                shoot(tab, console, address, folder / f"console-{name}.png", whole=every)
        with window(
            browser, console.url, viewport={"width": 1200, "height": 760}, color_scheme="dark"
        ) as tab:
            for name in EVERY if every else ("home",):
                shoot(tab, console, EVERY[name], folder / f"console-{name}-dark.png", whole=every)
        with window(
            browser, console.url, viewport={"width": 390, "height": 780}, color_scheme="light"
        ) as tab:
            for name in EVERY if every else ("dead",):
                shoot(tab, console, EVERY[name], folder / f"console-{name}-phone.png", whole=every)
        sys.stdout.write(
            f"{folder}: {len(list(folder.glob('console-*.png')))} pictures, {time.monotonic() - began:.0f} s\n"
        )


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--all"]
    main(Path(words[0]) if words else ROOT / "docs" / "images", every="--all" in sys.argv)
