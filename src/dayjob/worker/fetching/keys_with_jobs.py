"""KeysWithJobs: the keys of a pool's job names that an exchange passes, and how jobs in a queue get to their keys."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import consume, partitions
from dayjob.store.ops.consume import Entry, KeyedName
from dayjob.store.ops.rates import RateRule
from dayjob.store.steps import Runs
from dayjob.worker.pool_job_type import PoolJobType

#: Seconds for which one exchange may be delayed by sorting.
SORT_SECONDS = 0.05
#: How many more keys of a name than its share of the jobs an exchange passes.
MIN_KEYS = 4
#: If the share of a name is larger than FEW_JOBS, so many jobs are fetched of each key: a key costs more than a job.
FEW_JOBS = 16
JOBS_OF_A_KEY = 4
#: The same while jobs are prefetched, which are done within milliseconds: a turn may be longer then.
FEW_FAST_JOBS = 8
FAST_JOBS_OF_A_KEY = 8
#: How many keys of a name an exchange passes at most.
MAX_KEYS = 64


class KeysWithJobs:
    """The keys that were next at the last exchange, by job name."""

    def __init__(self, keys: Keys, link: Runs, job_types: Mapping[str, PoolJobType]) -> None:
        self._keys = keys
        self._link = link
        self._job_types = job_types
        self._next: dict[str, list[str]] = {}
        #: Names whose attempts are not counted by key, so that a request need not pass the keys of attempts that ended.
        self._uncounted: set[str] = set()

    def learn(self, next_keys: Mapping[str, list[str]], counted: Collection[str]) -> set[str]:
        """Note the next keys of some names, and which of them count attempts by key. Returns the names that do so newly."""
        if not next_keys:
            return set()
        self._next |= next_keys
        before, self._uncounted = (
            self._uncounted,
            self._uncounted.difference(counted).union(name for name in next_keys if name not in counted),
        )
        return before - self._uncounted

    def of(
        self,
        rules: Mapping[str, RateRule],
        entries: Sequence[Entry],
        done: Mapping[str, Sequence[str]],
        free: int,
        extra: int,
    ) -> dict[str, KeyedName]:
        """What a request passes of the keys of these names: the next ones, and those of attempts that it settles.

        More keys than jobs are passed, because some may turn out to be blocked.
        """
        found: dict[str, KeyedName] = {}
        waiting = sum(1 for name, rule in rules.items() if rule.key is not None and self._next.get(name))
        share = (free + extra) // max(1, waiting) + 1
        few, of_a_key = (FEW_FAST_JOBS, FAST_JOBS_OF_A_KEY) if extra else (FEW_JOBS, JOBS_OF_A_KEY)
        most = min(MAX_KEYS, MIN_KEYS + min(share, max(few, share // of_a_key)))
        # The next request may have more room: that of an idle pool has none for a prefetch.
        following = min(MAX_KEYS, most + FEW_JOBS)
        freed = [entry for entry in entries if entry.spent is not None and entry.spent.units < 0]
        for name, rule in rules.items():
            if rule.key is None:
                continue
            heads = self._next.get(name, [])[:most]
            tokens = [entry.token for entry in entries if entry.name == name]
            # An entry may correct a charge ahead of its outcome, so that its outcome must not be refused.
            counted = name not in self._uncounted or bool(tokens)
            if counted:
                tokens += done.get(name, ())
            ended = set(map(consume.key_in, tokens))
            if freed and rule.by_key:
                # What one name gives back of a limit, another name with the same key may use.
                ended |= {consume.key_in(entry.token) for entry in freed}
            settled = [key for key in ended.difference(heads) if key is not None]
            found[name] = KeyedName(heads, sorted(settled), self._price(name, rule), counted, following)
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
