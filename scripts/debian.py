# ruff: noqa: INP001, T201 - a part of scripts for people and CI, with fixed commands
"""Installs Debian packages, also where a mirror answers only at the second try or another program installs at this moment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

TRIES = 4
#: Seconds before the second try; twice as many before each further one.
PAUSE_SECONDS = 5.0
#: New machines update themselves after their first start, which holds the lock for minutes.
_OPTIONS = ("-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::Retries=3")


def possible() -> bool:
    """Whether packages can be installed here: as root, on Debian or a system made from it."""
    return hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: Sequence[str]) -> bool:
    """Install packages, and return whether they are installed. What apt-get prints goes to stderr."""
    # With this run level Debian starts no service of what it installs: the tests start servers of their own.
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for tried in range(TRIES):
        if tried:
            pause = PAUSE_SECONDS * 2 ** (tried - 1)
            print(f"apt-get failed; trying again in {pause:g} s", file=sys.stderr)
            time.sleep(pause)
        # The index first, each time: one that is old, or half a mirror's, names files that are not there.
        for words in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *packages]):
            command = ["apt-get", *_OPTIONS, *words]
            code = subprocess.run(command, env=environ, stdout=sys.stderr, check=False).returncode  # noqa: S603
        if code == 0:
            return True
    return False
