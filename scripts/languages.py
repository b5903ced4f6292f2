# ruff: noqa: INP001, S603, T201 - a script for people and CI, with fixed commands
"""Installs what the tests need beside Python: Ruby, Go and Node.js for the clients with their packages, Spin, promtool, PostgreSQL, a Redis with TLS.

Needs nothing but Python. A tool that is there is left alone; a missing one comes from Debian, as root.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import debian

ROOT = Path(__file__).resolve().parent.parent

#: A command that succeeds where the language can be used, and the Debian packages that bring it.
LANGUAGES: dict[str, tuple[list[str], list[str]]] = {
    "Ruby": (["ruby", "-rredis", "-rminitest", "-e", "exit"], ["ruby", "ruby-redis", "ruby-minitest"]),
    "Go": (["go", "version"], ["golang-go"]),
    "Node.js": (["node", "--version"], ["nodejs"]),
    "npm": (["npm", "--version"], ["npm"]),
    "Spin": (["spin", "-V"], ["spin"]),
    "OpenSSL": (["openssl", "version"], ["openssl"]),
    "redis-server": (["redis-server", "--version"], ["redis-server"]),
    "PostgreSQL": (["sh", "-c", "ls /usr/lib/postgresql/*/bin/initdb"], ["postgresql"]),
    "promtool": (["promtool", "--version"], ["prometheus"]),
    "a C compiler": (["cc", "--version"], ["gcc", "libc6-dev"]),
}


def works(command: list[str]) -> bool:
    """Whether a command is there and succeeds."""
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def install(packages: list[str]) -> None:
    """Install Debian packages. Ends the program where that cannot be done here."""
    if not debian.possible():
        sys.exit(
            f"missing: {' '.join(packages)} (Debian's names). Install them, or run this as root on Debian."
        )
    if not debian.install(["ca-certificates", *packages]):
        sys.exit(f"apt-get could not install {' '.join(packages)}; its output is above")


def fetch_packages() -> None:
    """Fetch what the clients and the Go programs among the tests are built from."""
    fetch(["npm", "ci", "--no-audit", "--no-fund"], ROOT / "clients" / "js")
    for module in sorted([*ROOT.glob("clients/**/go.mod"), *ROOT.glob("tests/**/go.mod")]):
        if "node_modules" not in module.parts:
            fetch(["go", "mod", "download"], module.parent)


def fetch(command: list[str], folder: Path) -> None:
    """Run a command that downloads; again if it fails, because a registry may be out of reach for a moment."""
    for seconds in (5, 20):
        if subprocess.run(command, cwd=folder, check=False).returncode == 0:
            return
        print(f"{' '.join(command)} failed; trying again in {seconds} s", flush=True)
        time.sleep(seconds)
    subprocess.run(command, cwd=folder, check=True)


def main() -> None:
    """Install what is missing, then fetch packages."""
    missing = {name: packages for name, (probe, packages) in LANGUAGES.items() if not works(probe)}
    if missing:
        print(f"installing {', '.join(missing)}")
        install([package for packages in missing.values() for package in packages])
        still = [name for name in missing if not works(LANGUAGES[name][0])]
        if still:
            sys.exit(f"installed, and still not usable: {', '.join(still)}")
    fetch_packages()


if __name__ == "__main__":
    main()
