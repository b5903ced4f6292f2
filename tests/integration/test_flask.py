"""A Flask app as real processes: it enqueues, `flask dayjob worker` runs its jobs, and the console is one of its pages."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from flask import Flask, current_app, g

from dayjob.errors import BadOption
from dayjob.flask import init_app
from server import free_port, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "flask_shop"


@pytest.fixture
def processes(tmp_path, redis_url, namespace):
    """Starts `flask` commands of the example, and ends them."""
    shutil.copy(EXAMPLE / "app.py", tmp_path)
    environ = {**os.environ, "DAYJOB_REDIS_URL": redis_url, "DAYJOB_NAMESPACE": namespace}
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "flask", "--app", "app", *words], cwd=tmp_path, env=environ
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
    for process in started:
        process.wait(60)


def test_the_example_enqueues_runs_and_shows_its_jobs(processes, look):
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    processes("run", "--port", str(port))
    processes("dayjob", "worker")

    def order() -> httpx.Response | None:
        try:
            return httpx.post(f"{base}/orders/7", timeout=60)
        except httpx.TransportError:
            return None

    # The page waits for the result for some seconds only.
    wait_until(look.pools)
    placed = wait_until(order)
    result = httpx.get(f"{base}/jobs/{placed.json()['job']}", timeout=60)
    assert result.json() == {"result": "order 7 confirmed by shop@example.org"}

    assert httpx.get(f"{base}/ops/jobs/", timeout=60).status_code == 403
    ada = httpx.Client(headers={"x-user": "ada"}, base_url=base, timeout=60)
    page = ada.get("/ops/jobs/", headers={"accept": "text/html"})
    assert page.status_code == 200
    style = re.search(r'href="([^"]+\.css[^"]*)"', page.text)[1]
    assert ada.get(style).status_code == 200
    assert [one["queue"]["name"] for one in ada.get("/ops/jobs/api/v1/queues").json()["queues"]] == [
        "confirm"
    ]
    answer = ada.post("/ops/jobs/api/v1/queue/pause", json={"name": "confirm"})
    assert answer.status_code == 200, answer.text
    assert look.call("EXISTS", look.keys.paused("confirm")) == 1
    # A stream cannot pass: after this answer the page polls.
    assert ada.get("/ops/jobs/events").status_code == 204


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_jobs_run_in_a_context_of_the_app_that_ends_with_them(new_pool, colour):
    app = Flask("shop")
    app.config["NAME"] = "shop"
    ended: list[object] = []

    @app.teardown_appcontext
    def teardown(error: BaseException | None) -> None:
        ended.append(error)

    pool = new_pool()
    init_app(app, pool)
    seen: list[tuple[str, bool]] = []

    def work() -> None:
        seen.append((current_app.config["NAME"], "visited" in g))
        g.visited = True

    async def awork() -> None:
        work()

    job = pool.register("work", work if colour == "sync" else awork)
    pool.start()
    for _ in range(2):
        job.enqueue()
    assert pool.drain(60)
    assert seen == [("shop", False)] * 2
    assert ended == [None, None]
    assert not current_app


def test_a_pool_that_workers_could_not_find_is_refused_by_the_command(new_pool):
    app = Flask("nowhere")
    init_app(app, new_pool())
    answer = app.test_cli_runner().invoke(args=["dayjob", "worker"])
    assert answer.exit_code == 2
    assert "target='shop.app:pool'" in answer.output


def test_commands_get_the_pool_that_the_app_names(new_pool, namespace):
    app = Flask("nowhere")
    init_app(app, new_pool(), target="no_such_module:pool")
    answer = app.test_cli_runner().invoke(args=["dayjob", "check"])
    assert "no_such_module" in answer.output


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--help"], 0, "Usage: flask dayjob [OPTIONS]"), (["--version"], 0, "dayjob, version"),
        (["wrker"], 2, "no command 'wrker'. Did you mean 'worker'?"), (["jobs", "--help"], 0, "Usage: flask dayjob jobs"),
    ],
)  # fmt: skip
def test_help_and_typos_are_those_of_the_command_line(new_pool, words, code, text):
    app = Flask("nowhere")
    init_app(app, new_pool(), target="shop:pool")
    answer = app.test_cli_runner().invoke(args=["dayjob", *words])
    assert (answer.exit_code, text in answer.output) == (code, True), answer.output


@pytest.mark.parametrize(
    ("options", "text"), [({"role": lambda: None}, "need its path"), ({"console": "/"}, "give a path")]
)
def test_wrong_options_are_refused(new_pool, options, text):
    with pytest.raises(BadOption, match=text):
        init_app(Flask("shop"), new_pool(), **options)
