"""Node results: fills the arguments of a node of a workflow with the results of other nodes, when its attempt starts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dayjob.errors import DayjobError, Dead, GiveBack, StoreError
from dayjob.handlers.gaps import Path, filled, takes_of
from dayjob.store import codec
from dayjob.worker.running.attempt import Attempt

#: What arguments and results that another program changed can raise.
_UNFIT = (TypeError, ValueError, LookupError, msgspec.MsgspecError)


def fill(attempt: Attempt) -> None:
    """Read the results that a sync attempt takes, in one request. Raises GiveBack if Redis cannot be reached, and Dead."""
    workflow_id, numbers, places = _wanted(attempt)
    try:
        found = attempt.job_type.type.pool.enqueuer.node_results(workflow_id, numbers)
    except StoreError as error:
        raise GiveBack(f"its arguments could not be read: {error}") from error
    _put(attempt, places, found)


async def afill(attempt: Attempt) -> None:
    """`fill`, awaited."""
    workflow_id, numbers, places = _wanted(attempt)
    try:
        found = await attempt.job_type.type.pool.async_enqueuer.node_results(workflow_id, numbers)
    except StoreError as error:
        raise GiveBack(f"its arguments could not be read: {error}") from error
    _put(attempt, places, found)


def _wanted(attempt: Attempt) -> tuple[str, list[int], list[Path]]:
    node = codec.node_of(attempt.wire)
    try:
        takes = takes_of(attempt.wire.takes)
    except _UNFIT as error:
        raise Dead(f"its references to results cannot be read: {error}") from None
    if node is None:
        raise Dead("it takes results of other nodes, but belongs to no workflow")
    return node[0], [node[1] - before for before, _ in takes], [path for _, path in takes]


def _put(attempt: Attempt, places: Sequence[Path], results: Sequence[bytes | None]) -> None:
    try:
        # The payload keeps the references: a retry reads the results again.
        attempt.wire.args = msgspec.Raw(filled(attempt.wire.args, places, results))
    except _UNFIT as error:
        raise DayjobError(f"the results of other nodes cannot be put into its arguments: {error}") from None
