# ruff: noqa: INP001 - a program, not a module
"""The browser of the tests: finds a Chromium, installs one where there is none, and prints its path.

An installed one is taken first; else Debian's package, as root; else Playwright's own download.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import debian

#: Names that a Chromium may have on the PATH.
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def find() -> str | None:
    """The path of a browser; DAYJOB_TEST_BROWSER names one. None where there is none."""
    chosen = os.environ.get("DAYJOB_TEST_BROWSER")
    if chosen:
        return chosen
    on_path = next((found for name in NAMES if (found := shutil.which(name))), None)
    return on_path or downloaded()


def downloaded() -> str | None:
    """The browser that Playwright has downloaded before."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - where it is missing there is nothing to find

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def install() -> None:
    """Debian's package where that can be installed, else Playwright's own download."""
    if debian.possible() and debian.install(["chromium"]):
        return
    words = [sys.executable, "-m", "playwright", "install", "chromium"]
    subprocess.run(words, stdout=sys.stderr, check=False)  # noqa: S603 - words of this file


def main() -> str | None:
    """Print the path of a browser, installed if need be; what is wrong where there is none."""
    if find() is None:
        install()
    found = find()
    if found is None:
        return (
            "No browser: install Chromium (Debian: apt-get install chromium), or run"
            " python -m playwright install chromium, or name one in DAYJOB_TEST_BROWSER."
        )
    sys.stdout.write(f"{found}\n")
    return None


if __name__ == "__main__":
    sys.exit(main())
