"""`python -m dayjob.cli.child`: how a supervised process begins and ends. Started by `dayjob worker`, not by people."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from dayjob.cli import load, logs
from dayjob.worker.supervisor import child


def end(code: int) -> None:
    """End this process: do what the program asked for at its end, and nothing more.

    An interpreter that then takes itself to pieces needs a tenth of a second of processor time, which on a busy machine
    would come off the deadline of a stop.
    """
    # As the interpreter itself begins its end: threads that are no daemons are waited for, then exit handlers are called.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    end(child.main(sys.argv[1:], find=load.ready_pool, set_up=logs.set_up))
