"""Splits tracebacks into frames of the program's own code, frames of libraries, and the error. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]*)", line \d+')
#: Parts of a path that show that a file belongs to a library or to Python itself.
_LIBRARY = (
    "site-packages/",
    "dist-packages/",
    "/lib/python",
    "/dayjob/worker/",
    "<frozen ",
    "/dayjob/function.py",
)


@dataclass(frozen=True, slots=True)
class Trace:
    """A traceback, part by part."""

    #: Kind ("own-frame", "lib", "end") and text of each part, in order.
    parts: tuple[tuple[str, str], ...]
    own: int
    all: int


def split(text: str) -> Trace | None:
    """The parts of a traceback, or None."""
    parts: list[tuple[str, str]] = []
    for row in text.strip("\n").split("\n"):
        frame = _FRAME.match(row)
        if frame:
            path = frame["file"].replace("\\", "/")
            parts.append(("lib" if any(mark in path for mark in _LIBRARY) else "own-frame", row))
        elif row.startswith(("  ", "\t")) and parts and parts[-1][0] != "end":
            kind, before = parts[-1]
            parts[-1] = kind, f"{before}\n{row}"
        elif row.startswith(("Traceback (", "  + Exception Group")) or not row.strip():
            parts.append(("lib", row))
        else:
            parts.append(("end", row))
    if not text.strip():
        return None
    frames = [kind for kind, part in parts if _FRAME.match(part)]
    return Trace(tuple(parts), frames.count("own-frame"), len(frames))
