"""The pytest plugin, in projects of their own: their pytest is a process, with the other plugins that teams have."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import pytest

JOBS = """
    from dayjob import Job, WorkerPool

    pool = WorkerPool(namespace="shop")
    sent: list[str] = []

    @pool.job
    def mail(to: str) -> None:
        sent.append(to)

    @pool.job
    async def amail(to: str) -> None:
        sent.append(to)

    @pool.job(keep=60)
    def add(a: int, b: int) -> int:
        return a + b

    @pool.job
    def report(job: Job) -> None:
        sent.append(f"report at {job.tick}")

    pool.periodic("0 9 * * *", report, name="nine")
"""

BASIC = """
    import pytest
    from dayjob import NotReady
    from shop_jobs import add, mail, pool, report, sent

    def test_jobs_stay_in_memory(jobs):
        mail.enqueue("a@b.c")
        jobs.assert_enqueued(mail, to="a@b.c")
        sent.clear()
        jobs.drain()
        assert sent == ["a@b.c"]

    def test_inline(jobs_inline):
        sent.clear()
        mail.enqueue("x@y.z")
        assert sent == ["x@y.z"]

    @pytest.mark.dayjob(inline=True, at="2026-01-01T08:00:00+00:00")
    def test_the_marker(jobs, dayjob_clock):
        sent.clear()
        mail.enqueue("m@m.m")
        assert sent == ["m@m.m"]
        assert jobs.clock is dayjob_clock
        assert dayjob_clock.now() == 1767254400.0

    @pytest.mark.dayjob(at="2026-01-01T08:00:00+00:00")
    def test_a_tick(jobs):
        sent.clear()
        assert jobs.tick(report).tick == 1767258000.0
        jobs.drain()
        assert sent == ["report at 1767258000.0"]

    @pytest.mark.parametrize("number", range(3))
    def test_a_real_pool(real_pool, number):
        assert real_pool is pool
        assert add.result(add.enqueue(number, 3), 60) == number + 3

    def test_the_namespace_is_the_pools_own_again():
        assert pool.namespace == "shop"

    def test_the_guard():
        with pytest.raises(NotReady, match="would reach a real server"):
            mail.enqueue("a@b.c")

    def test_the_guard_in_a_block_of_ones_own():
        from dayjob.testing import testing
        with testing(pool) as jobs:
            mail.enqueue("a@b.c")
            assert len(jobs.enqueued()) == 1

    @pytest.mark.dayjob(guard=False)
    def test_without_the_guard(dayjob_server):
        from dayjob import Enqueuer
        assert Enqueuer("elsewhere", redis=dayjob_server).enqueue("mail", to="a@b.c").id
"""

INI = """
    [pytest]
    dayjob_pool = shop_jobs:pool
    dayjob_guard = true
    pythonpath = .
    addopts = --strict-markers -p no:randomly
    filterwarnings = error
"""


@pytest.fixture
def project(tmp_path):
    """Writes a project, runs its pytest and returns how its tests ended."""

    def run(*options: str, ini: str = INI, **files: str) -> dict[str, int]:
        for name, text in {"shop_jobs": JOBS, **files}.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        (tmp_path / "pytest.ini").write_text(textwrap.dedent(ini))
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("DAYJOB_", "PYTEST_"))
        }
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *options], cwd=tmp_path, env={**environ, "COLUMNS": "200"},
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        run.output = done.stdout + done.stderr
        return {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}

    return run


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_the_fixtures_the_marker_and_the_guard_work(project, options):
    found = project(*options, "-p", "no:asyncio", "-p", "no:django", test_basic=BASIC)
    assert found == {"passed": 11}, project.output


def test_the_fixtures_work_with_pytest_asyncio(project):
    program = """
        import pytest
        from shop_jobs import amail, mail, sent

        @pytest.mark.asyncio
        async def test_both_colours(jobs):
            sent.clear()
            await amail.aenqueue("a")
            await mail.aenqueue("b")
            await jobs.adrain()
            assert sent == ["a", "b"]

        @pytest.mark.asyncio
        async def test_inline(jobs_inline):
            sent.clear()
            await amail.aenqueue("a")
            assert sent == ["a"]
    """
    ini = INI + "    asyncio_default_fixture_loop_scope = function\n"
    assert project("-p", "no:django", ini=ini, test_async=program) == {"passed": 2}, project.output


def test_the_fixtures_work_with_anyio(project):
    program = """
        import pytest
        from shop_jobs import amail, sent

        pytestmark = pytest.mark.anyio

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        async def test_a_job(jobs):
            sent.clear()
            await amail.aenqueue("a")
            await jobs.adrain()
            assert sent == ["a"]
    """
    found = project("-p", "no:asyncio", "-p", "no:django", test_anyio=program)
    assert found == {"passed": 1}, project.output


def test_the_fixtures_work_with_pytest_django(project):
    settings = """
        SECRET_KEY = "x"
        USE_TZ = True
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth"]
    """
    program = """
        import pytest
        from django.contrib.auth.models import Group
        from django.db import transaction
        from shop_jobs import pool

        @pool.job
        def found(name: str) -> None:
            Group.objects.create(name=name)

        @pytest.mark.django_db
        def test_a_job_sees_the_database_of_the_test(jobs):
            found.enqueue("a")
            jobs.drain()
            assert Group.objects.count() == 1

        @pytest.mark.django_db
        def test_a_job_after_the_commit(jobs, django_capture_on_commit_callbacks):
            with django_capture_on_commit_callbacks(execute=True):
                with transaction.atomic():
                    found.using(on_commit=transaction.on_commit).enqueue("b")
                jobs.assert_not_enqueued(found)
            jobs.assert_enqueued(found, name="b")
    """
    ini = INI + "    DJANGO_SETTINGS_MODULE = shop_settings\n"
    found = project("-p", "no:asyncio", ini=ini, shop_settings=settings, test_django=program)
    assert found == {"passed": 2}, project.output


def test_a_project_whose_pool_is_not_found_is_told_what_to_write(project):
    ini = "[pytest]\npythonpath = .\naddopts = -p no:asyncio -p no:django\n"
    program = """
        import pytest

        def test_none(jobs): ...

        @pytest.mark.dayjob(pool="elsewhere.jobs:pool")
        def test_no_module(jobs): ...

        @pytest.mark.dayjob(pool="shop_jobs:pond")
        def test_no_such_name(jobs): ...
    """
    assert project(ini=ini, test_none=program) == {"error": 3}
    assert "dayjob_pool = app.jobs:pool" in project.output
    assert (
        "there is no module 'elsewhere'. If it is in the folder of the ini file, write pythonpath = . there"
        in project.output
    )
    assert "the module has no 'pond'" in project.output
    assert "dayjob_pytest.py" not in project.output


def test_a_marker_with_a_wrong_setting_is_refused(project):
    program = """
        import pytest

        @pytest.mark.dayjob(inlined=True)
        def test_it(jobs): ...
    """
    assert project("-p", "no:asyncio", "-p", "no:django", test_wrong=program) == {"error": 1}
    assert "inlined: it takes pool, inline" in project.output


def test_pytest_loads_nothing_of_dayjob_until_a_test_uses_it(project):
    program = """
        import sys

        def test_nothing_is_loaded():
            assert "dayjob_pytest" in sys.modules
            assert not [name for name in sys.modules if name == "dayjob" or name.startswith("dayjob.")]
    """
    ini = "[pytest]\naddopts = -p no:asyncio -p no:django\n"
    assert project(ini=ini, test_light=program) == {"passed": 1}, project.output
