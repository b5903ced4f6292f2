"""What operators are shown of a fleet whose facts are known: the same, and true, in Python, web, API, commands and `top`."""

from __future__ import annotations

import contextlib
import html
import os
import platform
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Optional

import msgspec
import pytest

from commands import run_command
from dayjob import Admin, WorkerPool
from server import running, wait_until
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
        done = run_command((*words, *self._there), cwd=self._folder, env={**kept, "PYTHONPATH": SRC})
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
        words = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())
        return re.sub(r" ([.;,])", r"\1", words)

    def top(self, tab: str, pattern: str) -> str:
        """Open a tab of `dayjob top` and wait for this; the answer is all that it shows."""
        screen = self._terminal("top", *self._there, "--every", "0.2s", "--tab", tab, columns=180, lines=40)
        screen.settle(lambda: re.search(pattern, " ".join(screen.text.split())))
        return " ".join(screen.text.split())

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

    def explained(self, job, pattern: str) -> list[str]:
        """Why a job is not running, in Python, by the API, by a command, and on its page: each once it has this pattern."""
        faces = (
            lambda: self.admin.explain(job.id), lambda: self.api("/job/explain", id=job.id)["sentence"],
            lambda: self.run("jobs", "explain", job.id), lambda: self.run("jobs", "show", job.id),
            lambda: self.page("/job", id=job.id, name=job.name),
        )  # fmt: skip
        return [self.until(pattern, face) for face in faces]

    @staticmethod
    def until(pattern: str, face: Callable[[], str]) -> str:
        """What a face shows, once this can be found there: it may show what a pool published a moment ago."""
        return wait_until(lambda: re.search(pattern, text := " ".join(face().split())) and text)


@pytest.fixture
def operator(redis_url, namespace, tmp_path, terminal):  # noqa: F811 - the fixture
    with running_console(redis_url, namespace) as console:
        yield Operator(redis_url, namespace, tmp_path, console, terminal)


def is_told(operator, pattern: str, *, never: str = "All is well") -> None:
    """The verdict says so: in Python, by the API, by a command, on the first page, and in `dayjob top`."""
    # What a page shows may be a second old.
    faces = (
        lambda: operator.admin.verdict().sentence, lambda: operator.api("/verdict")["sentence"],
        lambda: operator.run("stats"), lambda: operator.page("/"), lambda: operator.top("home", pattern),
    )  # fmt: skip
    for face in faces:
        assert never not in operator.until(pattern, face)


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
    pool = new_pool(concurrency=3, beat=0.2, grace=0.1)

    def hang() -> None:
        # A wait in C does not notice the exception that ends an attempt. It may come before the wait has begun.
        while not gate.is_set():
            with contextlib.suppress(BaseException):
                gate.wait(300)

    pool.register("hang", hang, timeout=0.5, max_fails=1)
    pool.register("slow", lambda: gate.wait(300))
    resize = pool.register("resize", lambda: None)
    pool.start()
    pool.enqueuer.enqueue_many("hang", [{}, {}])
    wait_until(lambda: len(look.dead()) == 2)
    pool.enqueuer.enqueue("slow")
    wait_until(
        lambda: (
            [(one["running"], one["stuck"]) for one in look.status()] == [({"hang": 2, "slow": 1}, 2)]
            and len(look.workers()) == 3
        )
    )
    return resize.enqueue()


def test_a_job_behind_stuck_workers_is_not_about_to_be_fetched(operator, stuck):
    words = f"all 3 workers of {HERE} are busy; 2 of them are stuck past their timeout."
    for answer in operator.explained(stuck, re.escape(words)):
        assert "dayjob pools stacks" in answer
        assert "about to be fetched" not in answer
    operator.top_job(1, stuck, words)


def test_stuck_workers_are_no_capacity(operator, stuck):
    scale = operator.api("/scale")
    assert scale["total"]["stuck"] == 2
    assert (scale["total"]["busy"], scale["total"]["capacity"]) == (1, 1)
    # One for the job that waits, one for each that takes a place and does nothing, and some for those that came in lately.
    assert scale["total"]["wanted"] >= 3
    assert {one["name"]: one["capacity"] for one in scale["queues"]} == {"hang": 1, "slow": 1, "resize": 1}
    assert "3 (2 stuck)" in operator.run("queues", "ls")
    assert "2 stuck past their timeout" in operator.run("pools", "ls")
    assert "2 stuck past their timeout" in operator.page("/worker_pools")
    assert "2 stuck" in operator.page("/queues")
    operator.top("queues", r"3 \(2 stuck\)")
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
    words = "all 2 threads for plain functions are busy (threads=2, concurrency=20)."
    assert len(operator.explained(job, re.escape(words))) == 5
    operator.top_job(1, job, words)
    assert {one.queue.name: one.workers for one in operator.admin.queues().queues} == {
        "light": 20,
        "plain": 2,
    }
    assert {one["name"]: one["capacity"] for one in operator.api("/scale")["queues"]} == {
        "light": 20,
        "plain": 2,
    }
    assert "2/2 threads busy" in operator.run("pools", "ls")
    assert "2/2 threads busy" in operator.page("/worker_pools")
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
    # A pool that was paused does not know at once what blocks its loop.
    wait_until(
        lambda: any((one["loop_blocked"] or {}).get("id") == culprit.id for one in look.status()),
    )
    held = waits.enqueue()
    told = rf"the event loop of {HERE} has been blocked for [\w. ]+ by \"blocks\" \(id {culprit.id}\)\."
    for answer in operator.explained(held, told):
        assert "about to" not in answer
    operator.until("and blocks its event loop", lambda: operator.admin.explain(culprit.id))
    operator.until('event loop blocked by "blocks"', lambda: operator.run("pools", "ls"))
    operator.until('event loop blocked by "blocks"', lambda: operator.page("/worker_pools"))
    operator.top("pools", 'event loop blocked by "blocks"')


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
    check(
        lambda: of(
            r"Enqueued per minute (\d+) last 5 min Finished per minute (\d+)",
            operator.page("/queue", name="mail"),
        )
    )
    check(lambda: of(r"(\d+) jobs/min completed.* Completed per minute (\d+)", operator.page("/")))
    check(lambda: of(row := r"mail 0 0 0 (\d+) (\d+)", operator.top("queues", row)))
    assert "no figures" not in operator.run("queues", "show", "mail")


# All is well?


def test_a_namespace_that_was_never_used_is_not_well(operator, namespace):
    is_told(operator, rf'Nothing has ever run in namespace "{namespace}"\.')
    assert operator.admin.verdict().level == "warning"
    health = operator.run("health")
    assert health == f'Redis answers. Nothing has ever run in namespace "{namespace}".'


def test_without_a_pool_it_is_not_well_though_nothing_waits(operator, enqueuer):
    enqueuer.enqueue_in("later", 3600)
    is_told(operator, r"No pool is running\.")
    assert operator.admin.verdict().level == "warning"
    assert operator.run("health") == "Redis answers. No pool is running."


def test_dead_jobs_are_named_and_no_alarm(operator, new_pool, look):
    pool = new_pool()
    bad = pool.register("bad", lambda: 1 / 0, max_fails=1)
    pool.start()
    wait_until(look.status)
    assert operator.admin.verdict().sentence == "All is well."
    bad.enqueue()
    wait_until(look.dead)
    is_told(operator, r"1 job is dead\.")
    assert operator.admin.verdict().level == "notice"
    assert operator.run("health") == "healthy"


def test_stuck_workers_are_not_well_and_those_of_pools_whose_lease_is_over_do_not_count(
    operator, stuck, call, keys, look
):
    gone = {
        "id": "gone",
        "host": "box",
        "concurrency": 9,
        "stuck": 6,
        "running": {"hang": 6},
        "names": ["hang"],
    }
    call("SET", keys.pool("gone"), msgspec.json.encode(gone))

    is_told(operator, r'2 workers are stuck past their timeout \("hang"\); 2 jobs are dead\.')
    # Pools whose lease is over are taken off the register before long.
    call("ZADD", keys.pools, (look.now() - 7) * 1000, "gone")
    verdict = operator.admin.verdict()
    assert verdict.sentence.startswith('2 workers are stuck past their timeout ("hang");')
    assert (verdict.pools, verdict.workers, verdict.running) == (1, 3, 3)
    assert "2 workers stuck past the timeout" in operator.run("doctor")


def test_a_blocked_event_loop_is_not_well(operator, new_pool, gate, look):
    pool = new_pool(beat=0.2)

    @pool.job
    async def blocks() -> None:
        gate.wait(300)

    pool.start()
    blocks.enqueue()
    is_told(operator, rf'The event loop of {HERE} has been blocked for [\w. ]+ by "blocks"\.')
    operator.until("has been blocked for", lambda: operator.run("doctor"))


def test_pools_that_disagree_about_the_arguments_of_a_job_are_named(operator, new_pool, look):
    first, second = new_pool(), new_pool()

    @first.job("send_mail")
    def send(user_id: int) -> None: ...

    @first.job("both")
    def both(to: str | None = None) -> None: ...

    @second.job("send_mail")
    def send_other(to: str, subject: str = "") -> None: ...

    @second.job("both")
    def both_again(to: Optional[str] = None) -> None: ...  # noqa: UP045 - the same, written otherwise

    first.start()
    wait_until(lambda: len(look.status()) == 1)
    assert operator.admin.verdict().sentence == "All is well."
    second.start()
    wait_until(lambda: len(look.status()) == 2)
    is_told(operator, r'2 pools disagree about the arguments of "send_mail"\.')
    assert "pools disagree about the arguments of send_mail" in operator.run("doctor")
    second.stop()
    assert operator.admin.verdict().sentence == "All is well."


def test_a_server_that_evicts_or_forgets_is_not_well_and_workers_warn_of_it(
    namespace,
    tmp_path,
    terminal,  # noqa: F811 - the fixture
    caplog,
):
    folder = tmp_path / "server"
    folder.mkdir()
    options = ("--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")
    with running(folder, *options) as server, running_console(server.url, namespace) as console:
        operator = Operator(server.url, namespace, tmp_path, console, terminal)
        pool = WorkerPool(namespace=namespace, redis=server.url)
        pool.register("mail", lambda: None)
        with pool:
            evicts = [one.getMessage() for one in caplog.records if "allkeys-lru" in one.getMessage()]
            assert len(evicts) == 1
            assert "CONFIG SET maxmemory-policy noeviction" in evicts[0]
            is_told(
                operator,
                r"The server deletes keys when it is full \(maxmemory-policy allkeys-lru\);"
                r" the server keeps jobs in memory only: a restart loses them\.",
            )
            assert operator.admin.verdict().level == "error"
            wait_until(lambda: all(one.since and one.or_earlier for one in operator.admin.verdict().notes))
            assert "or longer)" in operator.run("stats")
            assert operator.run("health").startswith("Redis answers. The server deletes keys when it is full")


def test_a_worker_starts_where_it_may_not_read_the_settings_of_the_server(namespace, redis_url, call, caplog):
    call("ACL", "SETUSER", "blind", "on", ">word", "~*", "&*", "+@all", "-info", "-config")
    try:
        url = redis_url.replace("//", "//blind:word@")
        pool = WorkerPool(namespace=namespace, redis=url)
        mail = pool.register("mail", lambda: None)
        with pool, Admin(namespace, redis=url) as admin:
            mail.enqueue()
            assert pool.drain(60)
            wait_until(lambda: admin.verdict().sentence == "All is well.")
        pool.enqueuer.close()
    finally:
        call("ACL", "DELUSER", "blind")


def test_numbers_are_written_in_one_way_on_a_page(operator, enqueuer):
    enqueuer.enqueue_many("mail", [{}] * 1789)
    page = wait_until(lambda: "1,789 jobs wait" in (text := operator.page("/")) and text)
    assert re.search(r"Waiting 1,789", page)
    assert "1\u202f789" not in page
