"""KeysWithJobs: the keys of a pool's job names that an exchange passes, and how jobs in a queue get to their keys."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import consume, partitions
from dayjob.store.ops.consume import Entry, KeyedName
from dayjob.store.ops.rates import RateRule
from dayjob.store.steps import Runs
from dayjob.worker.pool_job_type import PoolJobType

#: Seconds for which one exchange may be delayed by sorting.
SORT_SECONDS = 0.05
#: How many more keys than jobs an exchange passes.
MIN_KEYS = 4


class KeysWithJobs:
    """The keys that were next at the last exchange, by job name."""

    def __init__(self, keys: Keys, link: Runs, job_types: Mapping[str, PoolJobType]) -> None:
        self._keys = keys
        self._link = link
        self._job_types = job_types
        self._next: dict[str, list[str]] = {}

    def learn(self, next_keys: Mapping[str, list[str]]) -> None:
        """Note the next keys of some names."""
        if next_keys:
            self._next |= next_keys

    def of(
        self,
        rules: Mapping[str, RateRule],
        entries: Sequence[Entry],
        done: Mapping[str, Sequence[str]],
        room: int,
    ) -> dict[str, KeyedName]:
        """What a request passes of the keys of these names: the next ones, and those of attempts that it settles.

        More keys than jobs are passed, because some may turn out to be blocked.
        """
        found: dict[str, KeyedName] = {}
        freed = [entry for entry in entries if entry.spent is not None and entry.spent.units < 0]
        for name, rule in rules.items():
            if rule.key is None:
                continue
            heads = self._next.get(name, [])[: MIN_KEYS + room]
            tokens = [entry.token for entry in entries if entry.name == name]
            ended = {consume.key_in(token) for token in (*tokens, *done.get(name, ()))}
            if freed and rule.by_key:
                # What one name gives back of a limit, another name with the same key may use.
                ended |= {consume.key_in(entry.token) for entry in freed}
            settled = [key for key in ended.difference(heads) if key is not None]
            found[name] = KeyedName(heads, sorted(settled), self._price(name, rule))
        return found

    def _price(self, name: str, rule: RateRule) -> float:
        if rule.key is None or not rule.key.by_time:
            return 1.0
        return max(self._job_types[name].estimate or 1.0, 0.001)

    def sort(self, name: str, by: Sequence[str]) -> bool:
        """Move jobs that are in the queue of a name to their keys, for a short time. Raises StoreError."""
        until = time.monotonic() + SORT_SECONDS
        moved = 0
        while True:
            payloads = self._link.run(partitions.oldest_unsorted(self._keys, name))
            jobs = [(self._key_of(name, by, payload), payload) for payload in _bounded(payloads)]
            count = self._link.run(partitions.sort_jobs(self._keys, name, by, jobs)) if jobs else 0
            moved += count
            if count < partitions.MAX_SORTED or time.monotonic() >= until:
                break
        return moved > 0

    def _key_of(self, name: str, by: Sequence[str], payload: bytes) -> str:
        try:
            wire = codec.read(payload, name)
        except codec.Broken:
            return ""
        return self._job_types[name].type.keys.of(by, wire.args, wire.source)


def _bounded(payloads: Sequence[bytes]) -> list[bytes]:
    """The first of these payloads, as many as one request may have."""
    found: list[bytes] = []
    size = 0
    for payload in payloads:
        size += len(payload)
        if found and size > partitions.MAX_SORTED_BYTES:
            break
        found.append(payload)
    return found
