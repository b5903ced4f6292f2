"""The measurement of pages has every page of the console, and every address of the API that reads."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from urllib.parse import urlsplit

from dayjob.web import v1
from dayjob.web.pages import routes

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "pages.py"
#: They search every job, or wait for a pool.
UNMEASURED = {"/batch/audit", "/workflow/audit", "/pool/stacks"}
#: Addresses with ids that differ with each run.
NAMED = {"DEAD": "/job", "BATCH": "/batch", "WORKFLOW": "/workflow"}


def paths(addresses: tuple[str, ...]) -> set[str]:
    return {NAMED.get(one) or urlsplit(one).path for one in addresses}


def test_every_page_and_every_reading_address_of_the_api_is_measured():
    spec = importlib.util.spec_from_file_location("page_times", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert paths(script.PAGES) == {route.path for route in routes() if "{" not in route.path}
    reading = {one.path for one in v1.ENDPOINTS if one.method == "GET" and not one.streams}
    assert paths(script.API) == reading - UNMEASURED
