"""`dayjob worker` as people meet it: its mistakes, its options, its log."""

from __future__ import annotations

import json
import os
import signal

import psutil
import pytest

from dayjob import Enqueuer
from server import free_port, wait_until
from workers import JOBS, WorkerCommand


@pytest.fixture
def worker(tmp_path, redis_url, namespace):
    command = WorkerCommand(tmp_path, redis_url, namespace)
    yield command
    command.close()


@pytest.fixture
def enqueue(redis_url, namespace):
    return Enqueuer(namespace, redis=redis_url).enqueue


def fails(worker: WorkerCommand, code: int, *options: str, pool: str = "jobs:pool", **settings) -> str:
    """Run a command that must fail; the answer is what it said, which is short and no traceback."""
    worker.start("--processes", "3", *options, pool=pool, **settings)
    assert worker.wait() == code, worker.log
    assert 1 <= len(worker.log.splitlines()) <= 6, worker.log
    assert "Traceback" not in worker.log
    return worker.log


def test_an_error_of_a_job_cannot_forge_a_line_of_the_log(worker, enqueue):
    worker.write(
        "from dayjob import WorkerPool\n"
        "pool = WorkerPool()\n"
        "@pool.job(max_fails=1)\n"
        "def mail(text: str) -> None:\n"
        "    raise ValueError(text)\n"
    )
    worker.start("--log-format", "text")
    forged = "12:00:00 INFO     1 dayjob.worker: all is well"
    enqueue("mail", text=f"no\x1b[2J\r\x9b31m\u202e\u2028\n{forged}")
    worker.wait_for_log("is dead")
    worker.wait_for_log("\n    ValueError: no")
    assert f"\n    {forged}" in worker.log
    assert f"\n{forged}" not in worker.log
    assert worker.log.replace("\n", "").isprintable()


EMPTY = "from dayjob import WorkerPool\npool = WorkerPool()\n"

MISTAKES = {
    "a module that is not there": ("", "jbos:pool", "no module 'jbos'", "Did you mean 'jobs'?"),
    "a module that is not in a package": (
        "",
        "shop.mial:pool",
        "no module 'shop.mial'",
        "Did you mean 'mail'?",
    ),
    "a pool that is not there": (EMPTY + "other = 1\n", "jobs:pol", "has no 'pol'", "Did you mean 'pool'?"),
    "something that is no pool": (
        EMPTY + "other = 1\n",
        "jobs:other",
        "is a int, not a WorkerPool",
        "jobs:pool",
    ),
    "a path": (EMPTY, "jobs.py", "is a path", "Write jobs:pool"),
    "a package's path": (EMPTY, "shop/jobs/__init__.py", "is a path", "Write shop.jobs:pool"),
    "nothing": (EMPTY, ":pool", "names no module", "app.jobs:pool"),
    "a module without a pool": ("x = 1\n", "jobs", "has no WorkerPool", "pool = WorkerPool()"),
    "a module with two pools": (
        EMPTY + "mail = WorkerPool()\n",
        "jobs",
        "has 2 pools",
        "jobs:pool, jobs:mail",
    ),
    "a pool without jobs": (EMPTY, "jobs:pool", "has no jobs", "@pool.job"),
    "a module that raises": (
        "x = 1\ny = x / 0\n",
        "jobs",
        "ZeroDivisionError: division by zero",
        "jobs.py:2: y = x / 0",
    ),
    "a module that exits": ("import sys\nsys.exit('no')\n", "jobs", "SystemExit: no", "jobs.py:2"),
    "a syntax error": ("x = 1\ndef f(:\n", "jobs", "SyntaxError", "jobs.py:2"),
    "a dependency that is missing": (
        "import no_such_thing\n",
        "jobs",
        "No module named 'no_such_thing'",
        "jobs.py:1",
    ),
    "a handler that cannot be called": (
        EMPTY + "@pool.job\ndef f(*rest: int) -> None: ...\n",
        "jobs",
        "f(*rest: int)",
        "jobs.py",
    ),
    "an include that is not there": (
        "from dayjob import WorkerPool\npool = WorkerPool(include=['shop.mial'])\n",
        "jobs",
        "shop.mial",
        "include",
    ),
    "an include that raises": (
        "from dayjob import WorkerPool\npool = WorkerPool(include=['shop.bad'])\n",
        "jobs",
        "ValueError: bad",
        "bad.py:1",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_ends_it_with_2_and_is_told_once_in_a_few_lines(worker, case):
    text, pool, *expected = MISTAKES[case]
    worker.write(text)
    (worker.folder / "shop").mkdir()
    for name, content in {"__init__": "", "mail": EMPTY, "bad": "raise ValueError('bad')\n"}.items():
        worker.write(content, f"shop/{name}.py")
    said = fails(worker, 2, pool=pool)
    for part in expected:
        assert part in said
    assert said.count("dayjob: ") == 1


def test_a_redis_that_cannot_be_reached_ends_it_with_69(worker):
    worker.redis_url = f"redis://:s3cret@127.0.0.1:{free_port()}/0"
    said = fails(worker, 69)
    assert "Connection refused" in said
    assert "Named by --redis" in said
    assert "s3cret" not in said
    assert said.count("dayjob: ") == 1


def test_a_redis_named_by_the_environment_is_called_so(worker):
    said = fails(worker, 69, redis=False, REDIS_URL=f"redis://127.0.0.1:{free_port()}/0")
    assert "Named by REDIS_URL" in said


def test_a_url_that_cannot_be_read_ends_it_with_2(worker):
    worker.redis_url = "localhost:6379"
    assert "write redis://localhost:6379/0" in fails(worker, 2)


def test_an_option_out_of_range_ends_it_with_2(worker):
    assert "--concurrency" in fails(worker, 2, "--concurrency", "0")


def test_a_pool_with_one_job_is_logged_in_the_singular(worker):
    worker.write("from dayjob import WorkerPool\npool = WorkerPool()\n@pool.job\ndef only() -> None: ...\n")
    worker.started()
    worker.wait_for_log("jobs:pool: 1 job, processes=1")
    worker.wait_for_log("started: 1 job, concurrency")


def test_one_line_says_what_runs_where(worker, server, redis_url):
    worker.redis_url = redis_url.replace("redis://", "redis://default:s3cret@")
    (child,) = worker.started("--concurrency", "7", "--threads", "3", "--tag", "blue")
    # The parent and its child write to one log.
    (line,) = wait_until(
        lambda: [one["message"] for one in worker.records() if "processes=" in one["message"]]
    )
    assert line.startswith("jobs:pool: 9 jobs, processes=1 concurrency=7 namespace=")
    assert line.endswith(f"redis=redis://default:***@127.0.0.1:{server.port}/0 (--redis)")
    assert "s3cret" not in worker.log
    assert not any("s3cret" in word for word in psutil.Process(child).cmdline())


def test_options_reach_the_pool(worker, call, keys):
    worker.started("--concurrency", "7", "--tag", "blue")
    (pool_id,) = call("ZRANGE", keys.pools, 0, -1)
    status = json.loads(wait_until(lambda: call("GET", keys.pool(pool_id.decode()))))
    assert status["concurrency"] == 7
    assert status["tag"] == "blue"


def test_options_can_be_given_by_the_environment(worker, namespace, redis_url):
    worker.start(
        redis=False,
        DAYJOB_WORKER_PROCESSES="2",
        DAYJOB_WORKER_CONCURRENCY="3",
        DAYJOB_WORKER_NAMESPACE=namespace,
        DAYJOB_WORKER_REDIS=redis_url,
    )
    worker.wait_for_log("started:", 2)
    assert len(worker.children()) == 2
    worker.wait_for_log(f"processes=2 concurrency=3 namespace={namespace}")


def test_the_only_pool_of_a_module_need_not_be_named(worker):
    worker.start(pool="jobs")
    worker.wait_for_log("started:")


def test_what_a_job_enqueues_goes_where_the_options_say(worker, enqueue):
    worker.write(
        (worker.folder / "jobs.py").read_text()
        + "\nenqueuer = pool.enqueuer\n@pool.job\ndef relay() -> None:\n    quick.enqueue(n=5)\n"
    )
    worker.started()
    enqueue("relay")
    assert worker.wait_for("quick")[0][1] == "5"


LOGGING = """
import logging
from dayjob import WorkerPool

pool = WorkerPool()


@pool.job
def talk(n: int) -> None:
    logging.getLogger("shop").info("talking %d", n)


@pool.job(max_fails=2, backoff=3600)
def fail() -> None:
    raise ValueError("no luck")
"""


def test_log_lines_are_json_where_there_is_no_terminal_and_name_the_job(worker, enqueue):
    worker.write(LOGGING)
    worker.started()
    job = enqueue("talk", n=3)
    failed = enqueue("fail")
    worker.wait_for_log("talking 3")
    worker.wait_for_log("no luck")
    assert all(line.startswith("{") for line in worker.log.splitlines())
    (line,) = [one for one in worker.records() if one["message"] == "talking 3"]
    assert line["logger"] == "shop"
    assert line["level"] == "info"
    assert (line["job_name"], line["job_id"], line["attempt"]) == ("talk", job.id, 1)
    (line,) = [one for one in worker.records() if "no luck" in one["message"]]
    assert (line["job_name"], line["job_id"]) == ("fail", failed.id)


#: A program that sets up logging as the documentation of Python shows it: existing loggers are disabled by default.
CONFIGURED = """
import logging, logging.config
from dayjob import WorkerPool

pool = WorkerPool()

CONFIG = {
    "version": 1,
    "formatters": {"own": {"format": "OWN %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "own"}},
    "root": {"level": "INFO", "handlers": ["stderr"]},
}

def configure(**loggers):
    logging.config.dictConfig(CONFIG | {"loggers": loggers})

@pool.job
def talk() -> None:
    logging.getLogger("shop").info("talking")

@pool.job(max_fails=1)
def fail() -> None:
    raise ValueError("no luck")
"""
IN_A_LIFESPAN = """
@pool.lifespan
def lifespan():
    configure()
    yield
"""


@pytest.mark.parametrize("how", ["configure()\n", IN_A_LIFESPAN])
def test_a_logging_configuration_that_disables_loggers_does_not_hide_why_a_job_died(worker, enqueue, how):
    worker.write(CONFIGURED + how)
    worker.start()
    job = enqueue("fail")
    worker.wait_for_log("no luck")
    (line,) = [line for line in worker.log.splitlines() if "no luck" in line and "OWN" in line]
    assert line.startswith("OWN ERROR dayjob.job")
    assert job.id in line
    worker.wait_for_log("OWN INFO dayjob.worker pool=")


def test_a_logger_that_a_configuration_names_stays_as_it_says(worker, enqueue):
    worker.write(CONFIGURED + 'configure(**{"dayjob.job": {"level": "CRITICAL"}})\n')
    worker.start()
    enqueue("fail")
    enqueue("talk")
    worker.wait_for_log("OWN INFO shop talking")
    worker.wait_for_log("OWN INFO dayjob.worker pool=")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "no luck" not in worker.log


def test_a_logger_that_a_program_disables_stays_disabled(worker, enqueue):
    worker.write(CONFIGURED + 'logging.getLogger("dayjob.job").disabled = True\n')
    worker.started()
    enqueue("fail")
    enqueue("talk")
    worker.wait_for_log("talking")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "no luck" not in worker.log


EXTRA = """
import logging
from dayjob import WorkerPool

pool = WorkerPool()

class Odd:
    def __str__(self):
        raise ValueError("no")

@pool.job
def talk() -> None:
    extra = {"order": 7, "tags": ["a", {"b": None}], "level": "mine", "pid": "x", "odd": Odd(), "nan": float("nan")}
    logging.getLogger("shop").info("talking", extra=extra)
"""


def test_json_lines_have_what_a_program_gave_as_extra(worker, enqueue):
    worker.write(EXTRA)
    worker.started()
    job = enqueue("talk")
    worker.wait_for_log("talking")
    (line,) = [one for one in worker.records() if one["message"] == "talking"]
    assert (line["order"], line["tags"], line["level"], line["job_id"]) == (
        7,
        ["a", {"b": None}],
        "info",
        job.id,
    )
    assert (line["extra_level"], line["extra_pid"]) == ("mine", "x")
    assert (line["odd"], line["nan"]) == ("(Odd, which cannot be shown)", "nan")


def test_text_lines_are_for_people(worker, enqueue):
    worker.write(LOGGING)
    worker.started("--log-format", "text")
    job = enqueue("talk", n=3)
    worker.wait_for_log(f"shop: talking 3 job=talk id={job.id} attempt=1\n")
    assert worker.records() == []


def test_quiet_leaves_warnings_and_errors(worker, enqueue):
    worker.write(LOGGING)
    worker.start("--quiet")
    enqueue("talk", n=3)
    enqueue("fail")
    worker.wait_for_log("no luck")
    assert {one["level"] for one in worker.records()} == {"warning"}


def test_a_program_that_sets_up_logging_itself_is_left_alone(worker, enqueue):
    worker.write("import logging\nlogging.basicConfig(level='INFO', format='OWN %(message)s')\n" + LOGGING)
    worker.start()
    enqueue("talk", n=3)
    worker.wait_for_log("OWN talking 3\n")


@pytest.mark.parametrize("polling", [False, True])
def test_reload_runs_the_code_as_it_was_saved_last(worker, enqueue, polling):
    if polling:
        worker.write("raise ImportError\n", "watchfiles.py")
    worker.started("--reload")
    text = (worker.folder / "jobs.py").read_text().replace('say("quick"', 'say("quicker"')

    def noticed() -> bool:
        # Again and again, because the parent may not watch the files yet.
        worker.write(text)
        return "jobs.py changed: replacing the processes" in worker.log

    wait_until(noticed, step=0.5)
    worker.wait_for_log(" stopped")
    enqueue("quick", n=1)
    worker.wait_for("quicker")


def test_an_interrupt_of_the_whole_group_is_one_stop(worker, enqueue):
    """As a terminal does it at Ctrl-C."""
    worker.started(processes=2)
    enqueue("hold", n=1)
    worker.wait_for("begin")
    os.killpg(worker.process.pid, signal.SIGINT)
    worker.wait_for_log("SIGINT: stopping within 25 s")
    worker.open_gate()
    assert worker.wait() == 0
    assert len(worker.said("end")) == 1
    assert "KeyboardInterrupt" not in worker.log


def test_what_a_program_asked_for_at_its_end_is_done_when_a_process_stops(worker, enqueue):
    worker.write(
        JOBS
        + """
import atexit
from concurrent.futures import ThreadPoolExecutor

atexit.register(say, "exit", "handler")
executor = ThreadPoolExecutor(1)


@pool.job
def leave_work_behind(n: int) -> None:
    executor.submit(lambda: (wait_for_gate(), say("behind", n)))
    say("left", n)
"""
    )
    worker.started()
    enqueue("leave_work_behind", n=1)
    worker.wait_for("left")
    worker.open_gate()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert worker.said("behind") == [["behind", "1"]]
    assert worker.said("exit") == [["exit", "handler"]]
