"""`python -m dayjob.cli.child`: how a supervised process begins. Started by `dayjob worker`, not by people."""

from __future__ import annotations

import sys

from dayjob.cli import load, logs
from dayjob.worker import child

if __name__ == "__main__":
    sys.exit(child.main(sys.argv[1:], find=load.ready_pool, set_up=logs.set_up))
