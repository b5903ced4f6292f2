"""Counts forks, so that a forked child can recognise connections that belong to its parent."""

from __future__ import annotations

import os

#: Differs between a process and every child that it forks. A module variable, because it is read for every job.
number = 0


def _forked() -> None:
    global number
    number += 1


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
