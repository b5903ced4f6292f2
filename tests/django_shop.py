"""The Django project of examples/django_shop, on a database and a namespace of its own, run as processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from server import free_port, wait_until

EXAMPLE = Path(__file__).parent.parent / "examples" / "django_shop"


class Shop:
    """A copy of the example, with its tables."""

    def __init__(self, folder: Path, database: str, redis: str, namespace: str) -> None:
        self.folder = folder / "project"
        shutil.copytree(
            EXAMPLE, self.folder, ignore=shutil.ignore_patterns("__pycache__", "*.sqlite3", "README.md")
        )
        self.database = database
        self.clients: list[httpx.Client] = []
        self.env = {
            **os.environ, "DAYJOB_REDIS_URL": redis, "DAYJOB_NAMESPACE": namespace, "SHOP_DATABASE_URL": database,
            "PYTHONWARNINGS": "error::RuntimeWarning", "SHOP_SQLITE": str(folder / "shop.sqlite3"),
        }  # fmt: skip
        self.manage("migrate", "--verbosity", "0")

    def manage(self, *words: str, code: int = 0) -> str:
        """Run manage.py to its end; what it printed."""
        done = self._run(*words)
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def read(self, *words: str) -> Any:
        """The JSON that `manage.py dayjob` printed."""
        return json.loads(self._run("dayjob", *words, "--json").stdout)

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *words], cwd=self.folder, env=self.env, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def python(self, code: str) -> str:
        """Run code in the project; the last line that it printed."""
        return self.manage("shell", "--verbosity", "0", "-c", code).strip().splitlines()[-1]

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """What the database has."""
        import psycopg

        with psycopg.connect(self.database) as connection:
            return connection.execute(query).fetchall()

    @contextlib.contextmanager
    def process(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A process of the project for the length of a block."""
        with running_process(words, self.folder, self.env) as process:
            yield process

    @contextlib.contextmanager
    def worker(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Workers for the length of a block."""
        with self.process("manage.py", "dayjob", "worker", *words) as process:
            yield process

    @contextlib.contextmanager
    def serving(self, kind: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
        """The shop's pages under a server that speaks "asgi" or "wsgi": the address and the process."""
        port = free_port()
        if kind == "asgi":
            words = ["-m", "uvicorn", "shop.asgi:application", "--port", str(port), "--log-level", "warning"]
        else:
            words = ["manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"]
        with self.process(*words) as process:
            base = f"http://127.0.0.1:{port}"
            wait_until(lambda: _answers(f"{base}/admin/login/"))
            yield base, process

    def login(self, base: str, name: str) -> httpx.Client:
        """A browser's session of a user. It is closed with the shop."""
        client = httpx.Client(base_url=base, timeout=60, headers={"accept": "text/html"})
        self.clients.append(client)
        client.get("/admin/login/")
        token = client.cookies["csrftoken"]
        client.post(
            "/admin/login/", headers={"referer": f"{base}/admin/login/"},
            data={"username": name, "password": "secret", "csrfmiddlewaretoken": token},
        )  # fmt: skip
        return client

    def close(self) -> None:
        """Close the sessions."""
        for client in self.clients:
            client.close()

    def user(self, name: str, *, staff: bool = True, superuser: bool = False, permission: str = "") -> None:
        """Make a user with the password "secret"."""
        self.python(
            "from django.contrib.auth.models import Permission, User\n"
            f"user = User.objects.create_user({name!r}, password='secret', is_staff={staff}, is_superuser={superuser})\n"
            f"if {permission!r}: user.user_permissions.add(Permission.objects.get(codename={permission!r}))\n"
            "print('made')"
        )


@contextlib.contextmanager
def running_process(
    words: Sequence[str], folder: Path, env: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Python in a folder for the length of a block."""
    process = subprocess.Popen([sys.executable, *words], cwd=folder, env=env)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=60).status_code == 200
    except httpx.TransportError:
        return False
