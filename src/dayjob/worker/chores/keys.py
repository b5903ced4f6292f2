"""KeyRepairer: finds jobs that wait under a key which no pool would visit, and keys that are blocked without a reason.

Redis may lose a sorted set or a held set of keys (deleted by hand, or by a restore). The leader builds them again within a
minute, from the partitions and from what pools hold. It remembers which keys had jobs a minute ago, because only a scan
of the whole server could find a partition whose key is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from dayjob.errors import Rejected
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.link import walk
from dayjob.store.ops import consume, maintain, membership, partitions, rates
from dayjob.store.ops.partitions import KEYS_AT_ONCE
from dayjob.store.ops.rates import RateRule
from dayjob.store.steps import Runs

logger = SafeLogger("dayjob.worker.chores.keys")


class KeyRepairer:
    """Puts the keys of job names right, for the leader."""

    def __init__(self, keys: Keys, link: Runs) -> None:
        self._keys = keys
        self._link = link
        #: The names that have keys, and the keys of each that had jobs, as the last repair saw them.
        self._rules: dict[str, RateRule] = {}
        self._seen: dict[str, set[str]] = {}
        #: The keys that operators limited, by name.
        self._limited: dict[str, set[str]] = {}

    def repair(self, names: Collection[str]) -> None:
        """Put back keys that Redis lost, and compare what counts against limits by key with what pools hold."""
        table = self._link.run(rates.rate_table(self._keys))
        self._rules = {name: rule for name, rule in table.rules.items() if rule.key is not None}
        self._put_back([name for name in names if name not in self._rules])
        self._seen = {name: self._seen.get(name, set()) for name in self._rules}
        if not self._rules:
            return
        self._limited = {
            name: self._link.run(partitions.limited_keys(self._keys, name)) for name in self._rules
        }
        self._recount()
        for name in self._rules:
            try:
                self._heal(name)
                self._unblock(name)
            except Rejected as error:
                # A key of a wrong type must not keep the other names from being repaired.
                logger.error("job=%s: its keys cannot be checked: %s", name, error)  # noqa: TRY400

    def _put_back(self, names: Sequence[str]) -> None:
        """Put jobs back into the queues of names that have no keys any more, but still have jobs under some."""
        for first in range(0, len(names), KEYS_AT_ONCE):
            some = names[first : first + KEYS_AT_ONCE]
            if self._link.run(partitions.have_keys(self._keys, some)):
                for name in some:
                    walk(self._link, partitions.unsort(self._keys, name))

    def _heal(self, name: str) -> None:
        """Put the keys of a name into turns that have jobs, and are no longer where they were a minute ago."""
        rule = self._rules[name]
        places = rule.key.places if rule.key is not None else 0
        try:
            present = set(walk(self._link, partitions.keys_of(self._keys, name)))
        except Rejected:
            # A sorted set has a wrong type. The script below replaces it.
            self._link.run(partitions.heal_keys(self._keys, name, [], places=places))
            present = set()
        gone = sorted(self._seen[name] - present)
        healed = 0
        for first in range(0, len(gone), KEYS_AT_ONCE):
            some = gone[first : first + KEYS_AT_ONCE]
            healed += self._link.run(partitions.heal_keys(self._keys, name, some, places=places))
        if healed:
            present = set(walk(self._link, partitions.keys_of(self._keys, name)))
        self._seen[name] = present
        if healed:
            logger.warning("job=%s: jobs of %d keys were found that Redis had lost track of", name, healed)

    def _recount(self) -> None:
        """Count what pools hold against the limits of its keys."""
        held: dict[str, list[str]] = defaultdict(list)
        # A condemned pool holds its attempts until it is swept.
        pools = self._link.run(membership.pool_ids(self._keys))
        condemned = self._link.run(membership.condemned_ids(self._keys))
        for pool_id in pools + condemned:
            for token in self._link.run(membership.held_tokens(self._keys, pool_id)):
                name, key = consume.name_in(token), consume.key_in(token)
                if key is not None and name in self._rules and self._counts(name, key):
                    held[partitions.place(name, key)].append(f"{pool_id}/{token}")
        self._count(held)

    def _counts(self, name: str, key: str) -> bool:
        """Whether the attempts of a key are counted: by the rule of the name, or because an operator limited the key."""
        rule = self._rules[name].key
        return (rule is not None and rule.places > 0) or key in self._limited.get(name, ())

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
