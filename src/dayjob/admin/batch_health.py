"""Batches that need attention: those that have been open for long, and those whose members have ended without them. Reads only."""

from __future__ import annotations

from dayjob.admin.findings import Finding, ok, warning
from dayjob.store.keys import Keys
from dayjob.store.ops import batches
from dayjob.store.steps import Steps, ask
from dayjob.text import counted

#: How many of the newest batches are checked.
MAX_CHECKED = 500
#: Seconds after which a batch that is still open is worth a look: the program that opened it may be gone.
OPEN_SECONDS = 3600.0


def check_batches(keys: Keys, now: float) -> Steps[list[Finding]]:
    """Whether batches wait for a program that is gone, or have not ended though their members have."""
    total = yield from ask(batches.count(keys))
    opened: list[str] = []
    stuck: list[str] = []
    for first in range(0, min(total, MAX_CHECKED), batches.PAGE):
        for one in (yield from batches.page(keys, skip=first)):
            if one.state == "open" and now - one.created_at > OPEN_SECONDS:
                opened.append(one.id)
            elif one.closed and not one.left and one.ended_at is None:
                stuck.append(one.id)
    found: list[Finding] = []
    if opened:
        what = f"{counted(len(opened), 'batch', 'batches')} open for more than an hour, such as {opened[0]}"
        todo = "if the program that opened it is gone: dayjob batches close ID, or cancel ID"
        found.append(warning("batches", what, todo))
    if stuck:
        what = (
            f"{counted(len(stuck), 'batch', 'batches')} not ended though all members have, such as {stuck[0]}"
        )
        found.append(warning("batches", what, "dayjob batches audit ID --repair"))
    return found or [ok("batches", f"{counted(total, 'batch', 'batches')}, none of them stuck")]
