"""What must not be shown: argument values by key pattern and by job type, in text that people see."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

#: What takes the place of a value.
HIDDEN = "[redacted]"
#: Keys whose values are hidden wherever arguments are shown.
SECRET = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api_?key|credential|private_?key|authorization", re.IGNORECASE
)


def shown(value: Any, hide: Collection[str] = (), *, depth: int = 6) -> Any:
    """`value` as it may be shown: keys that match are hidden, at any depth; long and deep parts are cut."""
    if depth <= 0:
        return "..."
    if isinstance(value, dict):
        return {
            key: HIDDEN if key in hide or SECRET.search(str(key)) else shown(item, hide, depth=depth - 1)
            for key, item in list(value.items())[:100]
        }
    if isinstance(value, list):
        return [shown(item, hide, depth=depth - 1) for item in value[:100]]
    if isinstance(value, str) and len(value) > 1000:
        return value[:1000] + "..."
    return value
