"""How often this process was forked off another, so that what belongs to the parent is left alone."""

from __future__ import annotations

import os

#: Differs between a process and every child it forks. A name of the module, since it is read for every job.
number = 0


def _forked() -> None:
    global number
    number += 1


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
