"""`python -m dayjob`."""

from dayjob.cli import main

main()
