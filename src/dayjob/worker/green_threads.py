"""Green threads: refuses to start a pool where gevent or eventlet has replaced the threads of the process."""

from __future__ import annotations

import sys

from dayjob.errors import NotReady

#: Library, its patching module, the function that reports a patch, and the argument of that function.
_PATCHERS = (
    ("gevent", "gevent.monkey", "is_module_patched", "threading"),
    ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
)


def refuse_green_threads() -> None:
    """Raise NotReady if threads are patched: the loops of a pool would block each other forever."""
    for library, module, is_patched, argument in _PATCHERS:
        patcher = sys.modules.get(module)
        if patcher is not None and getattr(patcher, is_patched)(argument):
            raise NotReady(
                f"{library} has patched the threads of this process, and a pool needs real threads.\n"
                f"    Run the workers in a process without {library}, such as: dayjob worker app.jobs:pool"
            )
