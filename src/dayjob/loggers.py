"""dayjob's loggers, kept alive: `logging.config` disables every existing logger that a configuration does not name.

That is the default of dictConfig and fileConfig. In a worker it would hide why a job died.
"""

from __future__ import annotations

import logging

#: Never logs. No program has a reason to disable it by hand, so that if it is disabled, a configuration has done it.
_WITNESS = logging.getLogger("dayjob.witness")


def restore() -> None:
    """Enable the loggers that a logging configuration disabled because it did not name them.

    Those that it names are never disabled, and keep their level and handlers. One that a program disabled by hand stays
    disabled, unless such a configuration came on top.
    """
    if not _WITNESS.disabled:
        return
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and (name == "dayjob" or name.startswith("dayjob.")):
            logger.disabled = False
