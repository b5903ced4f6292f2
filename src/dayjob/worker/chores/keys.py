"""KeyKeeper: finds jobs that wait under a key which no pool would visit, and keys that are blocked without a reason.

Redis may lose a sorted set or a held set of keys (deleted by hand, or by a restore). Partitions and what pools hold are
the truth, from which the leader puts them right within a minute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from dayjob.errors import Rejected
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.ops import consume, maintain, membership, partitions, rates
from dayjob.store.ops.partitions import KEYS_AT_ONCE
from dayjob.store.ops.rates import RateRule
from dayjob.store.steps import Runs, walk

logger = SafeLogger("dayjob.worker.chores.keys")

#: Scans of the server's keys in one round of the leader. A scan looks at 1,000 keys.
MAX_SCANS = 200


class KeyKeeper:
    """Puts the keys of job names right, for the leader."""

    def __init__(self, keys: Keys, link: Runs) -> None:
        self._keys = keys
        self._link = link
        #: Where the scan goes on; None while none is under way.
        self._cursor: bytes | None = None
        #: The names that have keys, as the last repair saw them.
        self._rules: dict[str, RateRule] = {}

    def repair(self) -> None:
        """Compare what counts against limits by key with what pools hold, and begin to look for lost partitions."""
        table = self._link.run(rates.rate_table(self._keys))
        self._rules = {name: rule for name, rule in table.rules.items() if rule.key is not None}
        self._put_back()
        if not self._rules:
            self._cursor = None
            return
        self._recount()
        for name in self._rules:
            try:
                self._unblock(name)
            except Rejected as error:
                # A key of a wrong type must not keep the other names from being repaired.
                logger.error("job=%s: its keys cannot be checked: %s", name, error)  # noqa: TRY400
        self._cursor = b"0"

    def _put_back(self) -> None:
        """Put jobs back into the queues of names that have no keys any more, but still have jobs under some."""
        names = [name for name in self._link.run(maintain.known_jobs(self._keys)) if name not in self._rules]
        for first in range(0, len(names), KEYS_AT_ONCE):
            some = names[first : first + KEYS_AT_ONCE]
            if self._link.run(partitions.have_keys(self._keys, some)):
                for name in some:
                    walk(self._link, partitions.unsort(self._keys, name))

    def scan(self) -> None:
        """Look at some of the server's keys for partitions that no pool would visit. Called once a second."""
        for _ in range(MAX_SCANS if self._cursor is not None else 0):
            self._cursor, found = self._link.run(partitions.scan_partitions(self._keys, self._cursor or b"0"))
            if found:
                self._heal(found)
            if self._cursor == b"0":
                self._cursor = None
                return

    def _heal(self, places: list[str]) -> None:
        by_name: dict[str, list[str]] = defaultdict(list)
        for place in places:
            name, _, key = place.partition("|")
            by_name[name].append(key)
        for name, found in by_name.items():
            rule = self._rules.get(name)
            for first in range(0, len(found), KEYS_AT_ONCE):
                some = found[first : first + KEYS_AT_ONCE]
                places_each = rule.key.places if rule is not None and rule.key is not None else 0
                healed = self._link.run(partitions.heal_keys(self._keys, name, some, places=places_each))
                if healed:
                    logger.warning(
                        "job=%s: jobs of %d keys were found that Redis had lost track of", name, healed
                    )

    def _recount(self) -> None:
        """Count what pools hold against the limits of its keys."""
        held: dict[str, list[str]] = defaultdict(list)
        pools = self._link.run(membership.pool_ids(self._keys))
        for pool_id in pools:
            for token in self._link.run(membership.held_tokens(self._keys, pool_id)):
                key, rule = consume.key_in(token), self._rules.get(consume.name_in(token))
                if key is not None and rule is not None and rule.key is not None and rule.key.places:
                    held[partitions.place(consume.name_in(token), key)].append(f"{pool_id}/{token}")
        self._count(held)

    def _count(self, held: Mapping[str, list[str]]) -> None:
        for place, members in held.items():
            for first in range(0, len(members), KEYS_AT_ONCE):
                some = members[first : first + KEYS_AT_ONCE]
                self._link.run(maintain.recount(self._keys, place, some))

    def _unblock(self, name: str) -> None:
        """Try keys again that are blocked although they have a place."""
        rule = self._rules[name]
        places = rule.key.places if rule.key is not None else 0
        first = 0
        while True:
            some = self._link.run(partitions.waiting_for_a_place(self._keys, name, first))
            stale: dict[str, list[str]] = {}
            for key in some:
                place = partitions.place(name, key)
                stale[place] = self._link.run(maintain.held_members(self._keys, place))
            self._count(stale)
            self._link.run(partitions.heal_keys(self._keys, name, some, places=places))
            if len(some) < KEYS_AT_ONCE:
                return
            first += len(some)
