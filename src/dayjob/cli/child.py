"""`python -m dayjob.cli.child`: entry point of a supervised process. `dayjob worker` starts it."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from dayjob.cli import load, logs
from dayjob.worker.supervisor import child


def end(code: int) -> None:
    """Exit: wait for threads and call exit handlers, but skip the rest of the interpreter's shutdown.

    The rest takes a tenth of a second of CPU time, which on a busy machine would not fit into the deadline of a stop.
    """
    # The interpreter begins its shutdown with the same two steps.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    end(child.main(sys.argv[1:], find=load.ready_pool, set_up=logs.set_up))
