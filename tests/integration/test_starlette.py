"""A pool in a FastAPI or Starlette app: started and closed with it, its console mounted in one line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from dayjob.starlette import console, lifespan
from server import free_port, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_shop"


@pytest.fixture
def start(tmp_path, namespace, redis_url):
    """Starts processes of the example, and ends them."""
    shutil.copy(EXAMPLE / "app.py", tmp_path)
    environ = {**os.environ, "DAYJOB_REDIS_URL": redis_url, "DAYJOB_NAMESPACE": namespace}
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **more: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-m", *words], cwd=tmp_path, env={**environ, **more})
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
    for process in started:
        process.wait(60)


def answers(url: str, headers: dict[str, str]) -> bool:
    try:
        return httpx.get(url, headers=headers, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(("number", "apart"), [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_the_example_runs_jobs_shows_the_console_and_ends_though_a_page_is_open(
    start, tmp_path, look, number, apart
):
    """Its workers run apart, or in the app itself. uvicorn has no limit for its shutdown."""
    port = free_port()
    words = ("uvicorn", "app:app", "--port", str(port), "--log-level", "warning")
    process = start(*words, **({} if apart else {"SHOP_RUNS_WORKERS": "1"}))
    base = f"http://127.0.0.1:{port}"
    ada = {"x-user": "ada"}
    wait_until(lambda: answers(f"{base}/ops/jobs/queues", ada))
    worker = start("dayjob", "worker", "app:pool") if apart else None
    # The example waits for the result for some seconds, which a worker may need to start on a busy machine.
    wait_until(
        lambda: httpx.get(f"{base}/ops/jobs/api/v1/pools", headers=ada, timeout=60).json()["pools"], step=0.1
    )
    placed = httpx.post(f"{base}/orders/7", timeout=60).json()
    result = httpx.get(f"{base}/jobs/{placed['job']}", timeout=60).json()
    assert result == {"result": "order 7 is confirmed"}
    # The transaction of this one is rolled back, and its job with it.
    assert httpx.post(f"{base}/orders/7", timeout=60).status_code == 409
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM dayjob_outbox").fetchone() == (1,)
    assert httpx.get(f"{base}/ops/jobs/queues", timeout=60).status_code == 403
    with httpx.stream("GET", f"{base}/ops/jobs/events", headers=ada, timeout=60) as stream:
        lines = stream.iter_lines()
        assert next(lines)
        process.send_signal(number)
        for _ in lines:
            pass
    process.wait(60)
    if worker is not None:
        worker.terminate()
        worker.wait(60)
    assert look.pools() == []
    assert look.held() == 0


def test_the_lifespan_closes_what_the_app_opened_and_runs_the_inner_one(new_pool):
    pool = new_pool()
    steps: list[str] = []

    @pool.job
    def mail() -> None: ...

    @asynccontextmanager
    async def inner(app):
        steps.append("inner begins")
        yield {"greeting": "hello"}
        steps.append("inner ends")

    app = Starlette(routes=[Mount("/jobs", console(pool))], lifespan=lifespan(pool, inner=inner))

    async def main() -> None:
        async with app.router.lifespan_context(app) as state:
            assert state == {"greeting": "hello"}
            mail.enqueue()
            await mail.aenqueue()
            assert pool.enqueuer.sender.links.idle
            steps.append("up")

    asyncio.run(main())
    assert steps == ["inner begins", "up", "inner ends"]
    assert not pool.enqueuer.sender.links.idle


def test_an_app_that_enqueues_nothing_opens_nothing(new_pool):
    pool = new_pool()
    app = FastAPI(lifespan=lifespan(pool))

    async def main() -> None:
        async with app.router.lifespan_context(app):
            pass

    asyncio.run(main())
    assert not {"enqueuer", "async_enqueuer"} & set(vars(pool))


def test_a_pool_can_be_started_and_stopped_in_async_code(new_pool, look):
    pool = new_pool()

    @pool.job(keep=60)
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> int:
        async with pool:
            job = await add.aenqueue(1, 2)
            found = await add.aresult(job, 20)
            await pool.async_enqueuer.close()
            return found

    assert asyncio.run(main()) == 3
    assert look.pools() == []
