"""A real browser for the tests: the system's Chromium, driven by Playwright. Anything it complains of is collected."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import browser as setup

#: Milliseconds that anything in a page may take.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)
#: Messages that a page takes away after some seconds stay longer: whoever looks for them may be suspended meanwhile.
LASTING_MESSAGES = """{
    const real = window.setTimeout;
    window.setTimeout = (act, wait, ...rest) => real(act, wait >= 1000 ? wait * 5 : wait, ...rest);
}"""


@cache
def executable() -> str:
    """The browser's path; skips where there is none, except under CI."""
    found = setup.find()
    if found is None:
        words = "no browser: python scripts/browser.py installs one"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    return found


@contextlib.contextmanager
def launched(playwright: Playwright | None = None) -> Iterator[Browser]:
    """A browser for the length of a block."""
    path = executable()
    with contextlib.ExitStack() as stack:
        driver = playwright or stack.enter_context(sync_playwright())
        found = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        stack.callback(found.close)
        yield found


@dataclass
class Window:
    """One tab, and everything in it that should not have happened."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to a page of the console, and wait until its script has run."""
        self.page.goto(self.base + path)
        self.page.wait_for_selector("#live[data-is=live], #live[data-is=down], #live[data-is=held]")
        return self.page

    def post(self, name: str) -> None:
        """Click a button, by its words."""
        self.page.get_by_role("button", name=name, exact=True).first.click()

    def confirm(self) -> None:
        """Say yes to the question that is asked."""
        self.page.locator("#ask[open] [value=yes]").click()

    def told(self, text: str) -> None:
        """Wait until the console says so."""
        self.page.locator(".toast", has_text=text).first.wait_for()


@contextlib.contextmanager
def window(browser: Browser, base: str, **options: object) -> Iterator[Window]:
    """A tab of its own profile, for the console at `base`."""
    context: BrowserContext = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)
    context.add_init_script(LASTING_MESSAGES)
    found = Window(context.new_page(), base)
    found.page.on("pageerror", lambda error: found.complaints.append(f"error: {error}"))
    found.page.on(
        "dialog", lambda dialog: (found.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss())
    )
    found.page.on("console", lambda told: _listen(found, told.type, told.text))
    try:
        yield found
    finally:
        context.close()


def _listen(window: Window, kind: str, text: str) -> None:
    # What the server refused in words is shown to the reader; the browser mentions it as well.
    if kind in ("error", "warning") and "Failed to load resource" not in text:
        window.complaints.append(f"{kind}: {text}")
