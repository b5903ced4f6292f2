"""`manage.py dayjob ...`: every command of `dayjob`, with the pool of this project."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from dayjob import cli

#: The pool of the project, as commands and the processes of a worker find it.
POOL = "dayjob.django:pool"


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Passes its arguments on. Django's own parser knows none of them."""

    help = "Background jobs: worker, web, top, check, doctor, jobs, ... (manage.py dayjob --help lists them)."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's form

    def run_from_argv(self, argv: list[str]) -> None:
        """Run a command of `dayjob`."""
        # The processes of a worker are new interpreters, and must find the project as this one did.
        folder = str(Path(argv[0]).resolve().parent)
        paths = [folder, os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        cli.main_of(POOL, _own_arguments(argv[2:]), prog=f"{Path(argv[0]).name} dayjob")

    def handle(self, *args: Any, **_: Any) -> None:
        """Run a command of `dayjob` by Django's call_command: `call_command("dayjob", "check")`."""
        cli.main_of(POOL, list(args), prog="manage.py dayjob")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """For call_command."""
        parser.add_argument("args", nargs="*")


def _own_arguments(argv: list[str]) -> list[str]:
    """The arguments without --settings and --pythonpath, which Django has read and applied already."""
    found: list[str] = []
    words = iter(argv)
    for word in words:
        option, equals, value = word.partition("=")
        if option not in ("--settings", "--pythonpath"):
            found.append(word)
            continue
        value = value if equals else next(words, "")
        if option == "--pythonpath":
            os.environ["PYTHONPATH"] = os.pathsep.join([value, os.environ["PYTHONPATH"]])
    return found
