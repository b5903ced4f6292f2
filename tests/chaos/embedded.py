"""An embedded pool: one process of its own, without a parent, that TERM stops within CHAOS_DEADLINE seconds."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from chaos.jobs import here
from chaos.program import pool
from dayjob.errors import StoreError

logger = logging.getLogger("chaos")


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    # A list, not an event: a handler that sets what its own thread is waiting for can wait for ever.
    told: list[int] = []
    pause = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    while not told:
        try:
            pool.start()
            break
        except StoreError as error:
            logger.warning("cannot start: %s", error)
            pause.wait(0.2)
    # In slices: a loop that died ends the pool.
    while not told:
        pause.wait(0.02)
        if pool._runtime is not None and pool._runtime.ended.is_set():
            return 70
    pool.stop(timeout=float(os.environ.get("CHAOS_DEADLINE", "2")))
    # Here, not where its process ends: what an interpreter does after that is its own business.
    here().ledger.write("stopped", target=os.getpid())
    return 0


if __name__ == "__main__":
    sys.exit(main())
