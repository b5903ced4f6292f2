"""What operators are shown of a fleet whose facts are known: the same, and true, in Python, web, API, commands and `top`."""

from __future__ import annotations

import html
import os
import platform
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from server import wait_until
from tui.conftest import terminal  # noqa: F401 - a fixture
from web.conftest import running_console

SRC = str(Path(__file__).resolve().parents[2] / "src")
HERE = f"{platform.node()}/{os.getpid()}"

#: Programs are started in some of them; on a busy machine that alone may take half a minute.
pytestmark = pytest.mark.timeout(300)


class Operator:
    """Asks the same question everywhere."""

    def __init__(self, redis_url: str, namespace: str, folder: Path, console, start_terminal) -> None:
        self.admin = console.admin
        self._folder, self._console, self._terminal = folder, console, start_terminal
        self._there = ("--redis", redis_url, "--namespace", namespace)

    def run(self, *words: str, code: int = 0) -> str:
        """What a command prints, on one line."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
        done = subprocess.run(
            [sys.executable, "-m", "dayjob", *words, *self._there],
            capture_output=True, text=True, timeout=120, cwd=self._folder, env={**kept, "PYTHONPATH": SRC}, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr).split())

    def api(self, path: str, **query):
        return self._console.api(path, **query)

    def metrics(self) -> str:
        """What Prometheus reads."""
        return self._console.get("/metrics").text

    def page(self, path: str, **query) -> str:
        """What a reader sees of a page."""
        answer = self._console.get(path, params=query, headers={"accept": "text/html"})
        assert answer.status_code == 200
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())

    def top(self, tab: str, *texts: str) -> str:
        """Open a tab of `dayjob top`, see these texts, and answer all that it shows."""
        screen = self._terminal("top", *self._there, "--every", "0.2s", "--tab", tab, columns=180, lines=40)
        return " ".join(screen.wait_for(*texts).split())

    def top_job(self, number: int, job, *texts: str) -> None:
        """Open the first job of the queue in this row of `dayjob top`, and see these texts."""
        screen = self._terminal(
            "top", *self._there, "--every", "0.2s", "--tab", "queues", columns=180, lines=40
        )
        screen.wait_for(job.name)
        screen.press(*["down"] * number)
        screen.settle(lambda: job.name in screen.cursor)
        screen.press("enter")
        screen.wait_for(f"Queues > {job.name}", job.id)
        screen.press("enter")
        screen.wait_for(*texts)

    def explained(self, job) -> list[str]:
        """Why a job is not running, in Python, by the API, by a command, and on its page."""
        answers = [
            self.admin.explain(job.id), self.api("/job/explain", id=job.id)["sentence"],
            self.run("jobs", "explain", job.id), self.run("jobs", "show", job.id),
            self.page("/job", id=job.id, name=job.name),
        ]  # fmt: skip
        return [" ".join(answer.split()) for answer in answers]


@pytest.fixture
def operator(redis_url, namespace, tmp_path, terminal):  # noqa: F811 - the fixture
    with running_console(redis_url, namespace) as console:
        yield Operator(redis_url, namespace, tmp_path, console, terminal)


@pytest.fixture
def gate():
    """Opens at the end of the test: jobs that wait for it end then."""
    found = threading.Event()
    yield found
    found.set()


# Why is this job not running?


@pytest.fixture
def stuck(new_pool, gate, look):
    """A pool of three workers: two are stuck past their timeout, one is busy, and a job waits."""
    pool = new_pool(concurrency=3, beat=0.2, grace=0.05)
    # A wait in C does not notice the exception that ends an attempt.
    pool.register("hang", lambda: gate.wait(300), timeout=0.1, max_fails=1)
    pool.register("slow", lambda: gate.wait(300))
    resize = pool.register("resize", lambda: None)
    pool.start()
    pool.enqueuer.enqueue_many("hang", [{}, {}])
    wait_until(lambda: len(look.dead()) == 2)
    pool.enqueuer.enqueue("slow")
    wait_until(
        lambda: [(one["running"], one["stuck"]) for one in look.status()] == [({"hang": 2, "slow": 1}, 2)]
    )
    return resize.enqueue()


def test_a_job_behind_stuck_workers_is_not_about_to_be_fetched(operator, stuck):
    for answer in operator.explained(stuck):
        assert f"all 3 workers of {HERE} are busy; 2 of them are stuck past their timeout." in answer
        assert "dayjob pools stacks" in answer
        assert "about to be fetched" not in answer
    operator.top_job(1, stuck, f"all 3 workers of {HERE} are busy; 2 of them are stuck past their timeout.")


def test_stuck_workers_are_no_capacity(operator, stuck):
    scale = operator.api("/scale")
    assert scale["total"]["stuck"] == 2
    assert (scale["total"]["busy"], scale["total"]["capacity"]) == (1, 1)
    # One for the job that waits, and one for each that takes a place and does nothing.
    assert scale["total"]["wanted"] == 3
    assert {one["name"]: one["capacity"] for one in scale["queues"]} == {"hang": 1, "slow": 1, "resize": 1}
    assert "3 (2 stuck)" in operator.run("queues", "ls")
    assert "2 stuck past their timeout" in operator.run("pools", "ls")
    assert "2 stuck past their timeout" in operator.page("/worker_pools")
    assert "2 stuck" in operator.page("/queues")
    operator.top("queues", "3 (2 stuck)")
    operator.top("pools", "2 stuck past their timeout")
    assert re.search(r"^dayjob_workers_stuck\{[^}]*\} 2$", operator.metrics(), re.MULTILINE)


def test_a_job_that_waits_for_one_of_few_threads_is_not_about_to_be_fetched(operator, new_pool, gate, look):
    pool = new_pool(concurrency=20, threads=2, beat=0.2)
    plain = pool.register("plain", lambda: gate.wait(300))

    @pool.job
    async def light() -> None: ...

    pool.start()
    pool.enqueuer.enqueue_many("plain", [{}, {}])
    wait_until(lambda: [one["threads_busy"] for one in look.status()] == [2])
    job = plain.enqueue()
    for answer in operator.explained(job):
        assert "all 2 threads for plain functions are busy (threads=2, concurrency=20)." in answer
    operator.top_job(1, job, "all 2 threads for plain functions are busy (threads=2, concurrency=20).")
    assert {one.queue.name: one.workers for one in operator.admin.queues().queues} == {
        "light": 20,
        "plain": 2,
    }
    assert {one["name"]: one["capacity"] for one in operator.api("/scale")["queues"]} == {
        "light": 20,
        "plain": 2,
    }
    assert "2/2 threads busy" in operator.run("pools", "ls")
    assert "2 of 2 threads for plain functions" in operator.page("/worker_pools")
    operator.top("pools", "2/2 threads busy")


def test_jobs_behind_a_blocked_event_loop_are_not_about_to_run(operator, new_pool, gate, look):
    pool = new_pool(concurrency=10, beat=0.2)

    @pool.job
    async def blocks() -> None:
        gate.wait(300)

    @pool.job
    async def waits() -> None: ...

    pool.start()
    culprit = blocks.enqueue()
    wait_until(lambda: any(one["loop_blocked"] for one in look.status()))
    held = waits.enqueue()
    told = rf"the event loop of {HERE} has been blocked for [\d.]+ s by blocks \(id {culprit.id}\)\."
    for answer in operator.explained(held):
        assert re.search(told, answer), answer
        assert "about to" not in answer
    assert "and blocks its event loop" in operator.admin.explain(culprit.id)
    assert "event loop blocked by blocks" in operator.run("pools", "ls")
    assert "event loop blocked for" in operator.page("/worker_pools")
    operator.top("pools", "event loop blocked by blocks")


# In and out per minute.


@pytest.fixture
def began(call, keys, look):
    """Figures began 100 s ago, and 500 jobs came in and ended since. Before a console starts, which keeps past minutes."""
    begin = int(look.now()) - 100
    first, last = begin // 60, int(look.now() // 60)
    call("HSET", keys.minute(first), "mail|o", 400, "mail|r4", 400, "mail|w4", 400, "|q", begin)
    call("HSET", keys.minute(last), "mail|o", 100, "mail|r4", 100)
    call("SADD", keys.known_jobs, "mail")
    return begin


def test_in_and_out_a_minute_are_the_same_everywhere(began, operator, look):
    """300 a minute, and less as time goes on."""

    def true(numbers, before):
        """All of them are what the time between two looks at the clock makes of 500."""
        high, low = (500 * 60 / (at - began) for at in (before, look.now()))
        return all(low - 1 <= float(number) <= high + 1 for number in numbers)

    def check(read):
        before = look.now()
        numbers = read()
        assert len(numbers) >= 2
        assert true(numbers, before), numbers

    def of(pattern, text):
        found = re.search(pattern, text)
        assert found, text
        return found.groups()

    check(lambda: [(view := operator.admin.queues().queues[0]).incoming, view.out])
    check(lambda: [(one := operator.api("/queues")["queues"][0])["incoming"], one["out"]])
    check(lambda: [(one := operator.api("/scale")["queues"][0])["in_per_minute"], one["out_per_minute"]])
    check(lambda: [(one := operator.api("/scale")["total"])["in_per_minute"], one["out_per_minute"]])
    check(lambda: of(r"mail 0 0 0 (\d+) (\d+)", operator.run("queues", "ls")))
    check(lambda: of(r"in/min ([\d.]+) out/min ([\d.]+)", operator.run("queues", "show", "mail")))
    check(lambda: of(r"mail 0 – 0 0 (\d+) (\d+)", operator.page("/queues")))
    check(lambda: of(r"In a minute (\d+) counted Out a minute (\d+)", operator.page("/queue", name="mail")))
    check(lambda: of(r"(\d+) jobs a minute end.* Ended a minute (\d+)", operator.page("/")))
    check(lambda: of(r"mail 0 0 0 (\d+) (\d+)", operator.top("queues", "mail")))
    assert "no figures" not in operator.run("queues", "show", "mail")
