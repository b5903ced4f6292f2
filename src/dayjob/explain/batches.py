"""What does a batch wait for? Reads where its members are that have not ended; words.py has the sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import batches, maintain, membership, pools
from dayjob.store.ops.batches import StoredBatch
from dayjob.store.steps import Steps, ask, ask_all

#: How many attempts of all pools are searched for members.
MAX_ATTEMPTS = 2000
#: How many pools with members are named.
MAX_PLACES = 3


@dataclass(frozen=True, slots=True)
class BatchWaits:
    """What a batch waits for: its members that have not ended, by where they are."""

    batch: StoredBatch
    #: Members that a pool holds, and the pools as host and process.
    running: int
    places: tuple[str, ...]
    #: Members that failed and wait for their next attempt.
    retry: int

    @property
    def waiting(self) -> int:
        """Members that wait in a queue, are scheduled, or are batches themselves."""
        return max(0, self.batch.left - self.running - self.retry)


#: The callbacks of a batch are jobs with the id of the batch and the event.
EVENTS = ("success", "complete", "dead")


def batch_of_callback(job_id: str) -> tuple[str, str]:
    """The batch and the event of which this would be the callback; two empty texts if of none."""
    batch_id, _, event = job_id.rpartition("-")
    return (batch_id, event) if event in EVENTS and batch_id.isalnum() else ("", "")


def batch_waits(keys: Keys, found: StoredBatch) -> Steps[BatchWaits]:
    """What a batch waits for. The attempts that pools hold are searched, at most 2,000."""
    if not found.left:
        return BatchWaits(found, 0, (), 0)
    numbers, places = yield from running_members(keys, found.id)
    failed = yield from ask(batches.bitmap(keys.batch_failed(found.id)))
    again = sum(batches.has_bit(failed, number) for number in numbers)
    return BatchWaits(found, len(numbers), places, max(0, found.failed - again))


def running_members(keys: Keys, batch_id: str) -> Steps[tuple[list[int], tuple[str, ...]]]:
    """The members of a batch, or the nodes of a workflow, that pools hold, and where the first of these pools run.

    At most 2,000 attempts are searched.
    """
    holders = yield from ask_all([membership.pool_ids(keys), membership.condemned_ids(keys)])
    ids = list(dict.fromkeys(holders[0] + holders[1]))
    tokens = yield from ask_all([membership.held_tokens(keys, pool_id) for pool_id in ids])
    numbers: list[int] = []
    where: dict[str, None] = {}
    left = MAX_ATTEMPTS
    for pool_id, some in zip(ids, tokens, strict=True):
        mine = yield from _members(keys, pool_id, some[:left], batch_id)
        left -= len(some[:left])
        numbers += mine
        if mine:
            where[pool_id] = None
    names = yield from _places(keys, list(where)[:MAX_PLACES])
    return numbers, tuple(names)


def _members(keys: Keys, pool_id: str, tokens: Sequence[str], batch_id: str) -> Steps[list[int]]:
    """The numbers of the members of a batch among these attempts."""
    found: list[int] = []
    for first in range(0, len(tokens), maintain.BATCH):
        some = tokens[first : first + maintain.BATCH]
        for payload in (yield from ask(maintain.read_held(keys, pool_id, some))):
            number = None if payload is None else number_in(payload, batch_id)
            if number is not None:
                found.append(number)
    return found


def number_in(payload: bytes, batch_id: str) -> int | None:
    """The number of a job in a batch or workflow; None if it is no member of that, or a member of one nested in it."""
    if batch_id.encode() not in payload:
        return None
    found = codec.membership_in(payload)
    return found[1][0] if found is not None and found[0][0] == batch_id and found[1][0] >= 0 else None


def _places(keys: Keys, ids: Sequence[str]) -> Steps[list[str]]:
    if not ids:
        return []
    known = {pool.id: pool.status for pool in (yield from pools.pools(keys))}
    found = [known.get(pool_id) for pool_id in ids]
    return [
        f"{status.host}/{status.pid}" if status is not None and status.host else f"pool {pool_id}"
        for pool_id, status in zip(ids, found, strict=True)
    ]
