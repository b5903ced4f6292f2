"""The measurement of pages has every page of the console, and every address of the API that reads."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from urllib.parse import parse_qsl, urlsplit

import msgspec

from dayjob.web import v1
from dayjob.web.pages import routes

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "pages.py"
#: They search every job, or wait for a pool.
UNMEASURED = {"/batch/audit", "/workflow/audit", "/pool/stacks"}
#: Addresses with ids that differ with each run.
NAMED = {"DEAD": "/job", "BATCH": "/batch", "WORKFLOW": "/workflow"}


def paths(addresses: tuple[str, ...]) -> set[str]:
    return {NAMED.get(one) or urlsplit(one).path for one in addresses}


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("page_times", SCRIPT)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_what_is_asked_of_the_api_are_its_parameters():
    takes = {one.path: msgspec.structs.fields(one.takes) for one in v1.ENDPOINTS if one.method == "GET"}
    for address in script().API:
        if address not in NAMED:
            place = urlsplit(address)
            asked, fields = dict(parse_qsl(place.query)), takes[place.path]
            assert set(asked) <= {field.name for field in fields}, address
            assert {field.name for field in fields if field.required} <= set(asked), address


def test_every_page_and_every_reading_address_of_the_api_is_measured():
    measured = script()
    assert paths(measured.PAGES) == {route.path for route in routes() if "{" not in route.path}
    reading = {one.path for one in v1.ENDPOINTS if one.method == "GET" and not one.streams}
    assert paths(measured.API) == reading - UNMEASURED
