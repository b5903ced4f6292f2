"""docs/guides/django.md: what a newcomer copies from it, into a new project, is a project that works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import django
import pytest

from django_shop import running_process
from server import wait_until

pytestmark = pytest.mark.timeout(600)

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "django.md"
FILE = re.compile(r"^```python\n# ([\w/]+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Django 5 has its tasks in a package.
BACKPORT = django.VERSION < (6,)


@pytest.fixture
def environ(redis_url) -> dict[str, str]:
    # The guide's own namespace: these tests have a server of their own.
    return {**os.environ, "DAYJOB_REDIS_URL": redis_url, "PYTHONWARNINGS": "error::RuntimeWarning"}


@pytest.fixture
def project(tmp_path, environ, namespace):
    """A new project of Django with the files of the guide."""
    environ["DAYJOB_NAMESPACE"] = namespace
    for words in (["startproject", "shop", "."], ["startapp", "orders"]):
        subprocess.run([sys.executable, "-m", "django", *words], cwd=tmp_path, check=True)
    files = FILE.findall(GUIDE.read_text("utf-8"))
    assert len(files) >= 8
    package = "django_tasks" if BACKPORT else "django.tasks"
    for name, code in files:
        path = tmp_path / name
        # What it shows of the settings is to be added to them.
        with path.open("a" if name.endswith("settings.py") else "w", encoding="utf-8") as file:
            file.write(code.replace("from django.tasks import", f"from {package} import"))
    if BACKPORT:
        with (tmp_path / "shop" / "settings.py").open("a", encoding="utf-8") as file:
            file.write('INSTALLED_APPS += ["django_tasks"]\n')

    def manage(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *words], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return manage


def test_the_files_of_the_guide_make_a_project_whose_jobs_and_tasks_run(project, tmp_path, environ):
    project("makemigrations", "orders")
    project("migrate", "--verbosity", "0")
    assert "no issues" in project("check")
    assert "OK" in project("test")
    with running_process(["manage.py", "dayjob", "worker"], tmp_path, environ):
        placed = project(
            "shell", "-c",
            "from django.test import Client\nfrom orders.tasks import remind\n"
            "print(Client().post('/orders/', {'email': 'ada@example.com'}, headers={'host': 'localhost'}).content)\n"
            "print('task', remind.enqueue('ada@example.com').id)",
        )  # fmt: skip
        assert '{"order": 1}' in placed
        task = re.search(r"^task (\S+)$", placed, re.MULTILINE)[1]

        def ended() -> bool:
            found = project(
                "shell", "-c",
                "from orders.models import Order\nfrom orders.tasks import remind\n"
                f"print('state', Order.objects.get().shipped, remind.get_result({task!r}).status)",
            )  # fmt: skip
            return "state True SUCCESSFUL" in found

        wait_until(ended)
