"""How often this process was forked off another, so that what belongs to the parent is left alone."""

from __future__ import annotations

import os

_count = 0


def count() -> int:
    """A number that differs between a process and every child it forks."""
    return _count


def _forked() -> None:
    global _count
    _count += 1


os.register_at_fork(after_in_child=_forked)
