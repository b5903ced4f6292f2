"""What somebody meets on the first day: mistakes that are easily made, and what is said about them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from dayjob import (
    Admin,
    AsyncEnqueuer,
    BadArguments,
    BadOption,
    BadSignature,
    Enqueuer,
    Job,
    UnknownJob,
    WorkerPool,
)
from dayjob.errors import Rejected, ResultTimeout, Unavailable
from dayjob.store.embedded import stop_server
from dayjob.store.op import plain
from server import running, wait_until
from workers import WorkerCommand

SRC = str(Path(__file__).resolve().parents[2] / "src")


@dataclass
class Context:
    customer: int = 0


@dataclass
class OtherContext:
    customer: int = 0


@dataclass
class Order:
    number: int


def refusal(kind: type[Exception], call, *args, **kwargs) -> str:
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    return str(caught.value)


# Making a pool.


def test_a_name_in_place_of_the_context_is_understood():
    text = refusal(BadOption, WorkerPool, "shop")
    assert "Did you mean WorkerPool(namespace='shop')?" in text
    assert "write WorkerPool(Context)" in refusal(BadOption, WorkerPool, Context())


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("namepace", "namespace"), ("rediss", "redis"), ("includes", "include"), ("concurency", "concurrency")],
)
def test_a_typo_in_an_option_of_the_pool_finds_the_option(typo, meant):
    assert f"no option {typo!r}. Did you mean {meant!r}?" in refusal(
        BadOption, lambda: WorkerPool(**{typo: "shop"})
    )


@pytest.mark.parametrize("namespace", ["my shop", "shop ", " shop", "shop\n", "a\tb", "a\x00b", "x" * 201])
def test_a_namespace_with_blanks_is_refused_wherever_it_is_given(namespace, redis_url):
    for make in (
        lambda: WorkerPool(namespace=namespace),
        lambda: Enqueuer(namespace, redis=redis_url),
        lambda: AsyncEnqueuer(namespace, redis=redis_url),
        lambda: Admin(namespace, redis=redis_url),
    ):
        assert "without blanks or line ends" in refusal(BadOption, make)
    assert "such as 'my-shop'" in refusal(BadOption, WorkerPool, namespace="my shop")
    assert "give a string" in refusal(BadOption, WorkerPool, namespace=7)


def test_a_client_in_place_of_a_url_is_refused_at_once_and_not_shown():
    client = redis.Redis(password="geheim")  # noqa: S106 - opens nothing
    for make in (WorkerPool, Enqueuer, AsyncEnqueuer, Admin):
        text = refusal(BadOption, lambda make=make: make(redis=client))
        assert text == "redis is of type Redis: give a URL like 'redis://localhost:6379/0', or 'embedded'"


def test_a_namespace_with_blanks_on_the_command_line_is_refused_in_words():
    done = subprocess.run(
        [sys.executable, "-m", "dayjob", "queues", "ls", "--namespace", "my shop", "--redis", "redis://127.0.0.1:1"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": SRC}, check=False, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "namespace 'my shop'" in done.stderr
    assert "Traceback" not in done.stderr


# Writing a handler.


def test_what_is_advised_for_star_args_is_a_signature_that_works():
    def f(*args, **kw): ...
    def g(*args): ...
    def h(job: Job, *args, **kw): ...

    for handler, shown in ((f, "f(**kw)"), (g, "g(**args)"), (h, "h(job: Job, **kw)")):
        text = refusal(BadSignature, WorkerPool().register, "job", handler)
        assert text.endswith(f"gets none: write {shown}")
        scope = {"Job": Job}
        exec(f"def {shown}: ...", scope)  # noqa: S102 - the advice itself is what is tested
        WorkerPool().register("job", scope[handler.__name__])


def test_the_context_of_another_pool_is_told_from_an_argument():
    def f(ctx: OtherContext, job: Job, n: int): ...
    def g(ctx: OtherContext, n: int): ...
    def order(order: OtherContext, n: int): ...

    own, none = WorkerPool(Context), WorkerPool()
    assert "which is Context: write ctx: Context" in refusal(BadSignature, own.register, "f", f)
    assert "which has none: write WorkerPool(OtherContext)" in refusal(BadSignature, none.register, "f", f)
    text = refusal(BadArguments, own.register("g", g).encode, (), {"n": 1})
    assert (
        "missing argument 'ctx'; ctx: OtherContext is not the context of this pool, which is Context" in text
    )
    text = refusal(BadArguments, none.register("g", g).encode, (), {"n": 1})
    assert "which has none: write WorkerPool(OtherContext)" in text


def test_an_argument_of_ones_own_class_that_was_forgotten_is_just_missing():
    def f(order: Order, n: int): ...

    text = refusal(BadArguments, WorkerPool(Context).register("f", f).encode, (), {"n": 1})
    assert "missing argument 'order'\n" in text


def test_a_schedule_for_an_unknown_job_fails_at_start_and_in_check(tmp_path, redis_url):
    pool = WorkerPool(redis=redis_url)

    @pool.job
    def send_mail(to: str = "") -> None: ...

    pool.periodic("@hourly", "send_mial")
    assert "did you mean 'send_mail'?" in refusal(UnknownJob, pool.start)
    (tmp_path / "jobs.py").write_text(
        "from dayjob import WorkerPool\npool = WorkerPool()\n\n@pool.job\ndef send_mail(): ...\n\n"
        "pool.periodic('@hourly', 'send_mial')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "dayjob", "check", "jobs:pool"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": SRC}, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 1
    assert "did you mean 'send_mail'?" in done.stderr
    assert "Traceback" not in done.stderr


# Results and errors.


@pytest.fixture
def pool(namespace, redis_url):
    made = WorkerPool(namespace=namespace, redis=redis_url, concurrency=2)

    @made.job(keep=60, max_fails=3, backoff=3600)
    def fail(n: int) -> None:
        def deep() -> None:
            raise ValueError(f"no good: {n}")

        deep()

    @made.job(max_fails=1)
    async def afail(n: int) -> None:
        raise KeyError(n)

    @made.job
    async def block(seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - the mistake that is made here

    @made.job
    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)

    yield made
    made.stop(timeout=0)
    made.enqueuer.close()


def test_no_result_of_a_job_in_retry_says_so_and_why(pool):
    pool.start()
    job = pool.enqueuer.enqueue("fail", n=7)
    wait_until(lambda: pool.enqueuer.state(job) == "retry")
    text = refusal(ResultTimeout, pool.enqueuer.result, job, timeout=0.1)
    assert re.search(r"within 0.1 s. Due in \d+ min after 1 fail, the last: ValueError: no good: 7", text)

    async def awaited() -> str:
        try:
            await pool.async_enqueuer.result(job, timeout=0.1)
        except ResultTimeout as error:
            return str(error)
        finally:
            await pool.async_enqueuer.close()
        raise AssertionError("there is no result")

    assert "Due in" in asyncio.run(awaited())


def test_no_result_of_a_job_that_waits_says_that_no_pool_runs(namespace, redis_url):
    enqueuer = Enqueuer(namespace, redis=redis_url)
    job = enqueuer.enqueue("mail")
    text = refusal(ResultTimeout, enqueuer.result, job, timeout=0.05)
    assert 'Waits in the queue "mail"' in text
    assert "no pool is running" in text
    enqueuer.close()


def test_a_traceback_begins_in_the_handler(pool, namespace, redis_url):
    pool.start()
    pool.enqueuer.enqueue("fail", n=7)
    pool.enqueuer.enqueue("afail", n=8)
    Enqueuer(namespace, redis=redis_url).enqueue("afail", m=9)
    with Admin(namespace, redis=redis_url) as admin:
        wait_until(lambda: admin.jobs("dead").total == 2 and admin.jobs("retry").total == 1)
        traces = [job.trace for state in ("dead", "retry") for job in admin.jobs(state).jobs]
    own = os.path.join("dayjob", "worker")  # noqa: PTH118 - as a frame shows it
    assert all(own not in trace for trace in traces)
    by_error = {trace.strip().rpartition("\n")[2]: trace for trace in traces}
    lines = by_error["ValueError: no good: 7"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "in fail" in lines[1]
    assert any("in deep" in line for line in lines)
    assert any("BadArguments: afail: got an unexpected argument 'm'" in trace for trace in traces)


def test_an_async_handler_that_blocks_the_loop_is_named_once(pool, caplog):
    caplog.set_level(logging.WARNING, "dayjob.worker")
    pool.start()
    pool.enqueuer.enqueue("wait", seconds=0.2)

    def said() -> list[str]:
        texts = [record.getMessage() for record in list(caplog.records)]
        return [text for text in texts if "blocked the event loop" in text]

    # Repeated, because the watchdog sees nothing of a block during which a busy machine pauses the process.
    while not said():
        pool.enqueuer.enqueue("block", seconds=2.5)
        assert pool.drain(60)
    pool.enqueuer.enqueue("block", seconds=2.5)
    assert pool.drain(60)
    (line,) = said()
    assert re.match(r"job=block id=\w+ blocked the event loop for \d+\.\d s at .*test_newcomer\.py:\d+", line)


def test_handlers_that_await_are_not_accused(pool, caplog):
    caplog.set_level(logging.WARNING, "dayjob.worker")
    pool.start()
    pool.enqueuer.enqueue("wait", seconds=1.5)
    assert pool.drain(60)
    assert "blocked the event loop" not in caplog.text


# The server.


def ask(url: str, kind: type[Exception]) -> str:
    with Admin("first-day", redis=url) as admin:
        return refusal(kind, admin.queues)


def test_a_wrong_password_database_or_scheme_says_what_to_write(tmp_path):
    from dayjob.store import addresses
    from dayjob.store.link import Link

    with running(tmp_path) as server:
        bare = server.url.removeprefix("redis://")
        link = Link(addresses.parse_url(server.url), tag="x")
        assert "most servers have 0 to 15" in ask(f"redis://{bare}/99", Rejected)
        link.run(plain("CONFIG", "SET", "requirepass", "geheim"))
        link.close()
        assert "It wants a password: write redis://:PASSWORD@host" in ask(server.url, Rejected)
        text = ask(f"redis://:falsch@{bare}", Rejected)
        assert "WRONGPASS" in text
        assert "The user or the password in the URL is wrong" in text
        assert "falsch" not in text
        text = ask(f"rediss://:geheim@{bare}", Unavailable)
        assert "write redis:// instead of rediss://" in text
        assert "geheim" not in text


def test_a_port_that_speaks_tls_is_suspected():
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        connection, _ = listening.accept()
        try:
            context.wrap_socket(connection, server_side=True)
        except (OSError, ssl.SSLError):
            connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    text = ask(f"redis://127.0.0.1:{listening.getsockname()[1]}", Unavailable)
    thread.join(60)
    listening.close()
    assert "If that port speaks TLS, write rediss:// instead of redis://." in text


def test_an_embedded_server_that_was_stopped_is_known_by_its_socket(tmp_path):
    with Admin("first-day", redis=f"embedded:{tmp_path}/data") as admin:
        admin.queues()
        stop_server(tmp_path / "data")
        for _ in range(2):
            text = refusal(Unavailable, admin.queues)
            assert "This embedded server seems to be stopped: `dayjob server start`" in text


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be somebody else")
def test_the_server_of_another_user_is_called_that(tmp_path):
    folder = tmp_path / "data"
    with Admin("first-day", redis=f"embedded:{folder}") as admin:
        admin.queues()
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o711)
    code = """
        import os, sys
        from pathlib import Path
        from dayjob.errors import ServerError
        from dayjob.store.embedded import open_server, server_status, stop_server
        os.setegid(65534)
        os.seteuid(65534)
        for call in (server_status, stop_server, open_server):
            try:
                call(Path(sys.argv[1]))
            except ServerError as error:
                print(str(error).splitlines()[0])
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), str(folder)],
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": SRC}, check=True, timeout=240,
        )  # fmt: skip
    finally:
        stop_server(folder)
    said = done.stdout.splitlines()
    assert len(said) == 3
    assert all(
        line.startswith(f"{folder.resolve()} belongs to user root, and so does its server") for line in said
    )


def test_that_nobody_named_a_server_is_said_once_for_all_processes(tmp_path, namespace):
    command = WorkerCommand(tmp_path, "", namespace)
    command.write(
        f"from dayjob import WorkerPool\npool = WorkerPool(namespace={namespace!r})\n\n@pool.job\ndef mail() -> None: ...\n"
    )
    try:
        command.start("--processes", "3", redis=False)
        command.wait_for_log("started:", 3)
        command.signal(signal.SIGINT)
        assert command.wait() == 0
        assert command.log.count("no Redis is configured") == 1
        assert str(tmp_path / ".dayjob") in command.log
    finally:
        command.close()
        stop_server(tmp_path / ".dayjob")


def test_a_loop_that_answers_before_the_question_returns_is_not_taken_for_a_blocked_one(caplog):
    from dayjob.worker.running.event_loop import LoopExecutor
    from dayjob.worker.running.loop_stall import LoopStallDetector

    class Answered(LoopExecutor):
        """Its calls return when they have been made."""

        busy = 1

        def call(self, work):
            done = threading.Event()
            super().call(lambda: (work(), done.set()))
            assert done.wait(60)

    loop = Answered(None, None, None, limit=1, on_room=lambda: None)
    try:
        stall = LoopStallDetector(loop)
        began = time.monotonic()
        for step in range(100):
            stall.look(began + step * 0.25)
    finally:
        loop.close()
    assert "blocked the event loop" not in caplog.text
