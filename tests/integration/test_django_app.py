"""`dayjob.django` in a real project: two apps on PostgreSQL, workers and web servers as processes of their own."""

from __future__ import annotations

import asyncio
import itertools
import signal

import click
import httpx
import pytest

from dayjob import cli
from django_shop import Shop
from server import free_port, wait_until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def shop(tmp_path, postgres, redis_url, namespace) -> Shop:
    found = Shop(tmp_path, postgres.database(), redis_url, namespace)
    yield found
    found.close()


def leaves(command: click.Command, path: tuple[str, ...]):
    """Every command below one, with its words."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from leaves(command.get_command(click.Context(command), name), (*path, name))
    else:
        yield path, command


def test_every_command_that_can_name_a_pool_is_given_the_projects():
    without = set()
    for path, command in leaves(cli.cli, ()):
        args = cli.with_pool([*path, "--help"], "dayjob.django:pool")
        takes = {name for one in command.params for name in (*one.opts, one.name)}
        if takes & {"--app", "--redis", "pool"}:
            assert "dayjob.django:pool" in args, path
        else:
            without.add(" ".join(path))
    assert without == {
        "demo", "config show", "server start", "server stop", "server status", "server path", "completion", "grafana", "alerts",
    }  # fmt: skip


def test_the_examples_own_tests_pass_its_migrations_are_complete_and_commands_fit_the_project(shop):
    assert "OK" in shop.manage("test")
    assert "No changes detected" in shop.manage("makemigrations", "--check", "--dry-run")
    assert "no issues" in shop.manage("check")
    assert shop.manage("dayjob", "--help").startswith("Usage: manage.py dayjob [OPTIONS]")
    typo = shop.manage("dayjob", "wrker", code=2)
    assert "Error: no command 'wrker'. Did you mean 'worker'?" in typo
    assert "Traceback" not in typo
    # Where manage.py does not start the worker, it needs the settings' name.
    unit = shop.manage("dayjob", "systemd")
    assert "Environment=DJANGO_SETTINGS_MODULE=shop.settings\nExecStart=" in unit
    assert "\n      DJANGO_SETTINGS_MODULE: shop.settings\n    depends_on:" in shop.manage(
        "dayjob", "compose"
    )
    variable = "\n            - {name: DJANGO_SETTINGS_MODULE, value: shop.settings}\n"
    assert variable in shop.manage("dayjob", "kubernetes")


def test_jobs_of_both_colours_are_sent_at_the_commit_run_and_shown(shop):
    with shop.worker("--processes", "2"), shop.serving("asgi") as (base, _):
        assert httpx.post(f"{base}/orders/?email=ada@example.com", timeout=60).status_code == 200
        assert httpx.post(f"{base}/orders/?email=eve@example.com&refuse", timeout=60).status_code == 409
        placed = httpx.post(f"{base}/orders/async/?email=bob@example.com", timeout=60).json()
        assert placed["orders"] == 2
        wait_until(lambda: len(shop.rows("SELECT * FROM mail_message")) == 2)
    assert shop.rows("SELECT email, shipped FROM orders_order ORDER BY email") == [
        ("ada@example.com", True),
        ("bob@example.com", True),
    ]
    assert "orders.ship" in str(shop.read("stats"))
    assert "3 jobs, 1 schedule" in shop.manage("dayjob", "check")


@pytest.mark.parametrize("checked", [True, False], ids=["health-checks", "no-health-checks"])
def test_a_restarted_postgresql_costs_no_job_that_starts_later(shop, postgres, checked):
    settings = shop.folder / "shop" / "settings.py"
    settings.write_text(
        settings.read_text().replace('"CONN_HEALTH_CHECKS": True', f'"CONN_HEALTH_CHECKS": {checked}')
        + '\nDAYJOB["CONCURRENCY"] = 1\nDAYJOB["DEFAULTS"] = {"max_fails": 9, "backoff": 0.01}\n'
    )
    place = "from orders.jobs import ship; from orders.models import Order\nfor _ in range(10): ship.enqueue(Order.objects.create(email='a@b.c').pk)\nprint(1)"
    with shop.worker():
        shop.python(place)
        wait_until(lambda: len(shop.rows("SELECT * FROM mail_message")) == 10)
        postgres.restart()
        shop.python(place)
        wait_until(lambda: len(shop.rows("SELECT * FROM mail_message")) >= 20)
    assert shop.read("history", "ls", "--outcome", "retried")["records"] == []


def test_the_console_is_for_staff_and_live_under_asgi(shop):
    shop.user("root", superuser=True)
    shop.user("clerk")
    shop.user("keeper", permission="operate_jobs")
    shop.user("guest", staff=False)
    shop.python("from orders.jobs import ship; ship.enqueue(1); print(1)")
    with shop.serving("asgi") as (base, process):
        assert httpx.get(f"{base}/admin/jobs/queues", headers={"accept": "text/html"}, timeout=60).headers[
            "location"
        ] == ("/admin/login/?next=/admin/jobs/queues")
        assert httpx.get(f"{base}/admin/jobs/api/v1/queues", timeout=60).status_code == 403
        assert shop.login(base, "guest").get("/admin/jobs/").status_code in (302, 403)
        clerk = shop.login(base, "clerk")
        page = clerk.get("/admin/jobs/queues")
        assert page.status_code == 200
        assert "orders.ship" in page.text
        assert 'href="/admin/jobs/' in page.text
        assert clerk.get("/admin/jobs/static/dayjob.css").status_code == 200
        refused = clerk.post("/admin/jobs/api/v1/queue/pause", json={"name": "orders.ship"})
        assert refused.status_code == 403, refused.text
        foreign = shop.login(base, "root").post(
            "/admin/jobs/api/v1/queue/pause",
            json={"name": "orders.ship"},
            headers={"sec-fetch-site": "cross-site"},
        )
        assert foreign.json()["code"] == "other_site"
        for name, verb in (("root", "pause"), ("keeper", "resume")):
            done = shop.login(base, name).post(
                f"/admin/jobs/api/v1/queue/{verb}", json={"name": "orders.ship"}
            )
            assert done.status_code == 200, done.text
        assert "keeper (web)" in shop.manage("dayjob", "audit")
        with clerk.stream("GET", "/admin/jobs/events") as stream:
            lines = stream.iter_lines()
            assert any(line == "event: pulse" for line in itertools.islice(lines, 20))
            # A server that stops waits for open streams; an open page must not hold it up.
            process.send_signal(signal.SIGTERM)
            for _ in lines:
                pass
        assert process.wait(60) is not None


def test_the_console_works_under_wsgi_without_a_stream(shop):
    shop.user("root", superuser=True)
    shop.python("from orders.jobs import ship; ship.enqueue(1); print(1)")
    with shop.serving("wsgi") as (base, _):
        root = shop.login(base, "root")
        for _ in range(3):
            assert "orders.ship" in root.get("/admin/jobs/queues").text
        assert root.post("/admin/jobs/api/v1/queue/pause", json={"name": "orders.ship"}).status_code == 200
        assert root.get("/admin/jobs/events").status_code == 204
        assert "orders.ship" in root.get("/admin/jobs/api/v1/queues").text


def test_enqueue_on_an_event_loop_names_the_call_that_works_there(shop):
    code = (
        "import asyncio\nfrom orders.jobs import ship\n"
        "async def view():\n"
        "    try: ship.enqueue(1)\n"
        "    except Exception as error: return str(error)\n"
        "print(asyncio.run(view()))"
    )
    assert "await job.aenqueue(...)" in shop.python(code)


def test_an_enqueue_outside_of_a_transaction_needs_no_database(shop):
    shop.env["SHOP_DATABASE_URL"] = f"postgresql://shop@127.0.0.1:{free_port()}/shop"
    jobs = shop.python("from orders.jobs import ship\nprint(ship.enqueue(1).id)")
    assert jobs in str(shop.read("jobs", "ls"))


def test_a_pool_finds_the_project_without_manage_py(shop):
    """A worker started by the plain command needs only the settings' module, as a script does."""
    shop.env["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    with shop.process("-m", "dayjob", "worker", "dayjob.django:pool"):
        shop.python(
            "from orders.jobs import ship; from orders.models import Order; ship.enqueue(Order.objects.create(email='a@b.c').pk); print(1)"
        )
        wait_until(lambda: shop.rows("SELECT * FROM mail_message"))


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ('DAYJOB["CONCURENCY"] = 4', "DAYJOB has no setting 'CONCURENCY'. Did you mean 'CONCURRENCY'"),
        ('DAYJOB["CONCURRENCY"] = 0', "concurrency=0"),
        ('DAYJOB = ["shop"]', "write a dict"),
        ('DAYJOB["MODULES"] = "jobs"', "write a list"),
    ],
)  # fmt: skip
def test_wrong_settings_are_explained(shop, more, found):
    with (shop.folder / "shop" / "settings.py").open("a") as settings:
        settings.write(f"\n{more}\n")
    assert found in shop.manage("check", code=1)


def test_the_checks_find_a_job_that_cannot_run_and_a_missing_server(shop):
    with (shop.folder / "mail" / "jobs.py").open("a") as jobs:
        jobs.write("\n\n@pool.job\ndef broken(at: 'Nowhere') -> None: ...\n")
    assert "dayjob.E001" in shop.manage("check", code=1)
    del shop.env["DAYJOB_REDIS_URL"]
    shop.env["SHOP_DEBUG"] = "0"
    assert "dayjob.W001" in shop.manage("check", "--deploy", code=1)


def test_django_setup_that_fails_is_explained_in_a_few_lines(shop):
    shop.env["DJANGO_SETTINGS_MODULE"] = "shop.nowhere"
    done = asyncio.run(_run(shop, "-m", "dayjob", "check", "dayjob.django:pool"))
    assert "No module named 'shop.nowhere'" in done
    assert "Traceback" not in done


async def _run(shop: Shop, *words: str) -> str:
    import sys

    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=shop.folder, env=shop.env,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 2, out
    return out.decode()
