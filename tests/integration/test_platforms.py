"""Where threads and forks are not as usual: gevent, eventlet, a fork at a bad moment, and systems without fork."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SRC = str(Path(__file__).resolve().parents[2] / "src")


@pytest.fixture
def python(tmp_path, redis_url, namespace):
    """Run a program in a process of its own, with `url` and `namespace` defined."""

    def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "program.py"
        path.write_text(f"url, namespace = {redis_url!r}, {namespace!r}\n" + textwrap.dedent(program))
        return subprocess.run(
            [sys.executable, *options, str(path)],
            capture_output=True, text=True, timeout=240, cwd=tmp_path, env={**os.environ, "PYTHONPATH": SRC}, check=False,
        )  # fmt: skip

    return run


def test_a_pool_obeys_a_signal_that_its_first_job_sends(python, look):
    done = python("""
        import logging, os, signal, threading
        from dayjob import WorkerPool

        pool = WorkerPool(namespace=namespace, redis=url)
        sent = threading.Event()

        @pool.job
        def first() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            sent.set()

        class UntilSent(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                # The line that the pool has started comes after the start of its loops.
                if "started" in record.getMessage():
                    sent.wait(60)

        logging.basicConfig(level="INFO", handlers=[UntilSent()])
        first.enqueue()
        pool.run()
        """)
    assert (done.returncode, done.stderr) == (0, "")
    assert look.totals()["done:first"] == 1


@pytest.mark.parametrize("start", ["pool.start()", "pool.run()"])
def test_a_pool_refuses_to_start_where_gevent_has_patched_threads(python, start):
    done = python(f"""
        from gevent import monkey
        monkey.patch_all()
        from dayjob import WorkerPool
        pool = WorkerPool(namespace=namespace, redis=url)
        pool.register("work", lambda: None)
        {start}
        """)
    assert done.returncode == 1
    assert "dayjob.errors.NotReady: gevent has patched the threads of this process" in done.stderr
    assert "dayjob worker" in done.stderr


def test_a_job_is_enqueued_where_gevent_has_patched_threads(python, look):
    done = python("""
        from gevent import monkey
        monkey.patch_all()
        from dayjob import WorkerPool
        pool = WorkerPool(namespace=namespace, redis=url)
        pool.register("work", lambda: None).enqueue()
        """)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(look.queue("work")) == 1


def test_gevent_that_patched_nothing_is_no_obstacle(python):
    done = python("""
        import gevent.monkey
        from dayjob import WorkerPool
        pool = WorkerPool(namespace=namespace, redis=url)
        work = pool.register("work", lambda: print("ran"))
        with pool:
            work.enqueue()
            assert pool.drain(60)
        """)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


def test_the_worker_command_refuses_a_program_that_patches_threads(tmp_path, redis_url, namespace):
    (tmp_path / "green.py").write_text(
        "from gevent import monkey\nmonkey.patch_all()\n"
        "from dayjob import WorkerPool\npool = WorkerPool()\n\n@pool.job\ndef work(): ...\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "dayjob", "worker", "green:pool", "--redis", redis_url, "--namespace", namespace],
        capture_output=True, text=True, timeout=240, cwd=tmp_path, env={**os.environ, "PYTHONPATH": SRC}, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "gevent has patched the threads" in done.stderr
    assert "Traceback" not in done.stderr


def test_eventlet_is_refused_alike(python):
    """Not installed here: only the one function that is asked is imitated."""
    done = python("""
        import sys, types
        patcher = types.ModuleType("eventlet.patcher")
        patcher.is_monkey_patched = lambda module: module == "thread"
        sys.modules["eventlet.patcher"] = patcher
        from dayjob import WorkerPool
        pool = WorkerPool(namespace=namespace, redis=url)
        pool.register("work", lambda: None)
        pool.start()
        """)
    assert "NotReady: eventlet has patched the threads" in done.stderr


def test_a_job_is_enqueued_and_run_where_there_is_no_fork_and_no_poll(python):
    """As on Windows."""
    done = python("""
        import os, select
        del os.register_at_fork, os.fork, select.poll
        from dayjob import WorkerPool
        pool = WorkerPool(namespace=namespace, redis=url)

        @pool.job
        def work(n: int) -> None:
            print("ran", n)

        @pool.job
        async def awaited(n: int) -> None:
            print("awaited", n)

        with pool:
            work.enqueue(n=1)
            assert pool.drain(60)
            awaited.enqueue(n=2)
            assert pool.drain(60)
        """)
    assert (done.returncode, done.stdout) == (0, "ran 1\nawaited 2\n"), done.stderr


def test_a_program_enqueues_runs_workers_and_reads_where_there_is_nothing_of_posix(python):
    """As on Windows: its modules, signals and calls are missing. What Python and other packages use is imported before."""
    done = python("""
        import asyncio, importlib.metadata, inspect, logging.handlers, multiprocessing, os, platform, select, signal
        import ssl, subprocess, sys, sysconfig, tempfile, urllib.request, uuid, zoneinfo
        del select.poll
        import click, cronsim, msgspec, redis, redis.asyncio
        sysconfig.get_config_vars()
        platform.uname()
        # A shell starts background jobs with SIGINT ignored, and the tests may run in one.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.platform = "win32"

        class Nothing:
            def find_spec(self, name, path=None, target=None):
                if name in ("fcntl", "pwd", "grp", "resource", "termios", "uvloop"):
                    raise ModuleNotFoundError(name, name=name)

        sys.meta_path.insert(0, Nothing())
        for name in ("fcntl", "pwd", "grp", "resource", "termios"):
            sys.modules.pop(name, None)
        for name in ("fork", "register_at_fork", "geteuid", "getuid", "killpg", "getpgid", "setsid"):
            delattr(os, name)
        for name in ("SIGHUP", "SIGUSR1", "SIGTSTP", "SIGCHLD", "SIGQUIT", "SIGKILL"):
            delattr(signal, name)
        from dayjob import Admin, Enqueuer, WorkerPool
        Enqueuer(namespace, redis=url).enqueue("work", n=1)
        pool = WorkerPool(namespace=namespace, redis=url)

        @pool.job(keep=60)
        def work(n: int) -> int:
            return n + 1

        @pool.job
        async def end() -> None:
            signal.raise_signal(signal.SIGINT)

        with pool:
            assert work.call(2, timeout=60) == 3
        end.enqueue()
        pool.run()
        with Admin(namespace, redis=url) as admin:
            print("ended", [one.queue.name for one in admin.queues().queues])
        """)
    assert (done.returncode, done.stdout) == (0, "ended ['end', 'work']\n"), done.stderr


def test_a_child_that_is_forked_while_an_enqueuer_is_under_construction_makes_its_own(python, look):
    done = python("""
        import os, threading
        import dayjob.enqueue.enqueuer
        from dayjob import WorkerPool

        inside, go = threading.Event(), threading.Event()

        class Slow(dayjob.enqueue.enqueuer.Enqueuer):
            def __init__(self, *args, **options):
                if threading.current_thread() is not threading.main_thread():
                    inside.set()
                    go.wait()
                super().__init__(*args, **options)

        dayjob.enqueue.enqueuer.Enqueuer = Slow
        pool = WorkerPool(namespace=namespace, redis=url)
        work = pool.register("work", lambda: None)
        maker = threading.Thread(target=lambda: pool.enqueuer)
        maker.start()
        inside.wait()
        pid = os.fork()
        if pid == 0:
            work.enqueue()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        go.set()
        maker.join()
        """)
    assert done.returncode == 0, done.stderr
    assert len(look.queue("work")) == 1


def test_a_child_that_is_forked_while_a_thread_imports_the_enqueuer_enqueues_too(python, look):
    done = python("""
        import os, sys, threading
        from dayjob import WorkerPool

        inside, go = threading.Event(), threading.Event()

        class Slow:
            \"\"\"Holds up the import of the Redis client until the fork waits for it, or has happened.\"\"\"

            def find_spec(self, name, *rest):
                if name == "redis" and not inside.is_set():
                    inside.set()
                    go.wait(1)

        sys.meta_path.insert(0, Slow())
        pool = WorkerPool(namespace=namespace, redis=url)
        work = pool.register("work", lambda: None)
        maker = threading.Thread(target=work.enqueue)
        maker.start()
        inside.wait()
        pid = os.fork()
        if pid == 0:
            threading.Timer(60, os._exit, (9,)).start()
            work.enqueue()
            os._exit(0)
        go.set()
        assert os.waitpid(pid, 0)[1] == 0
        maker.join()
        """)
    assert done.returncode == 0, done.stderr
    assert len(look.queue("work")) == 2


def test_the_first_enqueue_imports_nothing_more_than_the_enqueuer_did(python):
    """An import outside the lock that forks take would hang a child that is forked at that moment."""
    done = python("""
        import sys
        from dayjob import WorkerPool
        pool = WorkerPool(namespace=namespace, redis=url)
        work = pool.register("work", lambda: None)
        pool.enqueuer
        before = set(sys.modules)
        work.enqueue()
        print(sorted(set(sys.modules) - before))
        """)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
