"""RuleBook: the rate limits of a pool's job names, as far as this pool knows them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from dayjob.outcome import HeldBack
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.ops import rates
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.rates import Charge, RateRule
from dayjob.worker.pool_job_type import PoolJobType

logger = SafeLogger("dayjob.worker.fetching.fetcher")

#: Seconds between two log lines about the same problem.
LOG_INTERVAL_SECONDS = 60.0


class RuleBook:
    """What an exchange must pass so that the script can check the rate limits of its names.

    It begins with the limits of the code. When an exchange answers that Redis has other limits, because another version
    of the code or an operator changed them, the pool reads them and asks again.
    """

    def __init__(self, keys: Keys, link: Link, job_types: Mapping[str, PoolJobType]) -> None:
        self._keys = keys
        self._link = link
        self._job_types = job_types
        self._rules: dict[str, RateRule] = {}
        self._kinds: dict[str, str] = {}
        self._logged_at = float("-inf")
        for name, job_type in job_types.items():
            limits = job_type.options.limits
            if limits:
                self._rules[name] = RateRule(job_type.options.cost, tuple(one.name for one in limits))
                self._kinds |= {one.name: rates.definition_kind(one) for one in limits}
                job_type.rated = True

    def __bool__(self) -> bool:
        return bool(self._rules)

    def of(self, names: Iterable[str]) -> dict[str, RateRule]:
        """The rules of those names that have one."""
        return {name: self._rules[name] for name in names if name in self._rules} if self._rules else {}

    def kinds(self, rules: Mapping[str, RateRule], entries: Sequence[Entry]) -> dict[str, str]:
        """The kind of each limit of these rules, and of those that entries hold."""
        found = {limit: self._kind(limit) for rule in rules.values() for limit in rule.limits}
        for entry in entries:
            if isinstance(entry.outcome, HeldBack):
                found |= {limit: self._kind(limit) for limit in entry.outcome.limits}
        return found

    def freed_by(self, entries: Sequence[Entry]) -> set[str]:
        """The names that may start sooner because entries take back charges. The request must wake them."""
        if not self._rules:
            return set()
        freed = {
            limit
            for entry in entries
            if entry.spent is not None and entry.spent.units < 0
            for limit in entry.spent.marks
        }
        return {name for name, rule in self._rules.items() if not freed.isdisjoint(rule.limits)}

    def charge(self, name: str, marks: Mapping[str, str], at: float) -> Charge | None:
        """What an attempt of this name was charged at a Redis time; None if the name has no rate limits."""
        rule = self._rules.get(name)
        return (
            None if rule is None else Charge(rule.cost, {one: marks.get(one, "") for one in rule.limits}, at)
        )

    def read_again(self, names: Sequence[str]) -> bool:
        """Read the rules from Redis, because they differ for `names`. Returns whether the pool learned something."""
        table = self._link.run(rates.rate_table(self._keys))
        rules = {name: rule for name, rule in table.rules.items() if name in self._job_types}
        kinds = {limit: rates.kind_of(text) for limit, text in table.definitions.items() if text != "lifted"}
        learned = (rules, kinds) != (self._rules, self._kinds)
        self._rules, self._kinds = rules, kinds
        for name, job_type in self._job_types.items():
            job_type.rated = name in rules
        now = time.monotonic()
        if not learned and now - self._logged_at >= LOG_INTERVAL_SECONDS:
            self._logged_at = now
            logger.error(
                "job=%s: a rate limit of this queue is not defined in Redis. Its jobs start again within a minute, when a"
                " pool has written the limits of its code again.",
                ", ".join(names),
            )
        return learned

    def _kind(self, limit: str) -> str:
        return self._kinds.get(limit, "rate")
