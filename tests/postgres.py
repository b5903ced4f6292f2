"""A real PostgreSQL for the tests: a cluster of their own on a free port of this machine, run by a user that is not root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from server import free_port, missing, wait_until


def programs() -> Path:
    """Where the programs of the newest PostgreSQL are. Ends the test if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        missing("PostgreSQL is not installed: python scripts/languages.py installs it on Debian")
    return Path(on_path).resolve().parent


def _user() -> dict[str, object]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    missing("PostgreSQL does not run as root, and there is no user postgres or nobody")


class Postgres:
    """One cluster. Its databases need no password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = programs()
        self.port = free_port()
        self._as = _user()
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0

    def create(self) -> None:
        """Make the cluster's files."""
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        # The locale of the machine may be one that was never generated.
        self._run(
            "initdb", "-D", str(self.folder / "data"), "--auth=trust", "--username=test", "--no-sync",
            "--locale=C", "--encoding=UTF8",
        )  # fmt: skip

    def start(self) -> None:
        """Start it and wait until it answers."""
        # These tests end processes, and no machine: what was written need not be on the disk, and on a busy disk the sync of a
        # start takes longer than a minute.
        options = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "max_connections": 100, "fsync": "off",
        }  # fmt: skip
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [str(self.bin / "postgres"), "-D", str(self.folder / "data"), *words],
            stdout=log, stderr=log, cwd=self.folder, **self._as,
        )  # fmt: skip
        log.close()
        wait_until(self.answers)

    def answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended: {(self.folder / 'log').read_text()[-2000:]}")
        ready = [str(self.bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def stop(self) -> None:
        """End it at once, as a crash of its machine would: what was committed is recovered at the next start."""
        if self._process is not None:
            self._process.send_signal(3)  # SIGQUIT is "immediate shutdown"
            self._process.wait(60)
            self._process = None

    def restart(self) -> None:
        """End every connection."""
        self.stop()
        self.start()

    def database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        self._made += 1
        name = f"test_{self._made}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, name: str) -> str:
        return f"postgresql://test@127.0.0.1:{self.port}/{name}"

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [str(self.bin / program), *words], capture_output=True, cwd=self.folder, check=False, **self._as
        )
        assert done.returncode == 0, done.stderr.decode()


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A cluster for the length of a block."""
    # Not in pytest's folder, which only its own user may enter; root's own folder for such files may be another one.
    folder = Path(tempfile.mkdtemp(prefix="dayjob-postgres-", dir="/tmp" if os.geteuid() == 0 else None))
    found = Postgres(folder)
    try:
        found.create()
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder, ignore_errors=True)
