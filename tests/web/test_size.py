"""How much the console weighs, and that nothing of it comes from elsewhere."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import dayjob.web

ROOT = Path(dayjob.web.__file__).parent
FILES = [*(ROOT / "static").iterdir(), *(ROOT / "templates").iterdir()]


def test_style_script_and_templates_are_under_a_hundred_kilobytes_compressed():
    assert sum(len(gzip.compress(file.read_bytes())) for file in FILES) < 100 * 1000


def test_nothing_is_loaded_from_elsewhere():
    for file in FILES:
        found = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", file.read_text("utf-8"))
        assert set(found) <= {"http://www.w3.org"}, file.name


def test_nothing_in_a_template_is_inline_code_or_style():
    for file in FILES:
        if file.suffix == ".html":
            text = file.read_text("utf-8")
            assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:|\|safe\b", text), file.name
            assert len(re.findall(r"<script", text)) == (1 if file.name == "base.html" else 0)
