"""A pool in a FastAPI or Starlette app: started and closed with it, its console mounted in one line."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import textwrap
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from dayjob.starlette import console, lifespan
from server import wait_until

APP = """
    from fastapi import FastAPI
    from dayjob import WorkerPool
    from dayjob.starlette import console, lifespan

    pool = WorkerPool(namespace={namespace!r}, redis={redis!r})

    @pool.job(keep=60)
    def add(a: int, b: int) -> int:
        return a + b

    app = FastAPI(lifespan=lifespan(pool, run=True))
    app.mount("/ops/jobs", console(pool))

    @app.get("/sum")
    async def total(a: int, b: int) -> int:
        job = await add.aenqueue(a, b)
        return await add.aresult(job, 20)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def server_process(tmp_path, namespace, redis_url):
    """A FastAPI app under a real uvicorn, without a limit for its shutdown; its port and process."""
    (tmp_path / "shop_app.py").write_text(textwrap.dedent(APP.format(namespace=namespace, redis=redis_url)))
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "shop_app:app", "--port", str(port), "--log-level", "warning"],
        cwd=tmp_path,
    )
    try:
        yield port, process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=20).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_app_runs_jobs_shows_the_console_and_ends_though_a_page_is_open(server_process, number, look):
    port, process = server_process
    base = f"http://127.0.0.1:{port}"
    wait_until(lambda: answers(f"{base}/ops/jobs/queues"), 30)
    assert httpx.get(f"{base}/sum", params={"a": 2, "b": 3}, timeout=20).json() == 5
    with httpx.stream("GET", f"{base}/ops/jobs/events", timeout=30) as stream:
        lines = stream.iter_lines()
        assert next(lines)
        process.send_signal(number)
        for _ in lines:
            pass
    process.wait(20)
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
