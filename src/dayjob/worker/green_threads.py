"""Green: whether gevent or eventlet has replaced threads in this process. A pool needs real ones."""

from __future__ import annotations

import sys

from dayjob.errors import NotReady

#: Library, its module that patches others, the function that answers, and what it is asked for.
_PATCHERS = (
    ("gevent", "gevent.monkey", "is_module_patched", "threading"),
    ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
)


def refuse_green_threads() -> None:
    """Raise NotReady where threads are patched: the pool's loops would block each other for ever."""
    for library, module, asked, what in _PATCHERS:
        patcher = sys.modules.get(module)
        if patcher is not None and getattr(patcher, asked)(what):
            raise NotReady(
                f"{library} has patched the threads of this process, and a pool cannot start without real ones.\n"
                f"    Run the workers in a process without {library}, such as: dayjob worker app.jobs:pool"
            )
