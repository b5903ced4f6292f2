"""The entry point of the `dayjob` command and of `python -m dayjob`."""

import os
import signal

#: What shells report for a program that Ctrl-C ended.
INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Run the command line. Ctrl-C ends it without a traceback, even while it is still importing."""
    # A KeyboardInterrupt in an import would show a traceback, and nothing has to be cleaned up yet.
    ends_at_once = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ends_at_once:
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    from dayjob.cli import main as run  # noqa: PLC0415 - takes a while

    if ends_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
