"""RuleBook: the rate limits of a pool's job names, as far as this pool knows them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from dayjob.limits import KeyRule
from dayjob.outcome import HeldBack
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.ops import consume, rates
from dayjob.store.ops.consume import Entry, KeyedName
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
                self._kinds |= {one.name: rates.definition_kind(one) for one in limits}
                job_type.rated = True
            rule = rates.rule_of(job_type.options)
            if rule is not None:
                self._rules[name] = rule

    def __bool__(self) -> bool:
        return bool(self._rules)

    def of(self, names: Iterable[str]) -> dict[str, RateRule]:
        """The rules of those names that have one."""
        return {name: self._rules[name] for name in names if name in self._rules} if self._rules else {}

    def kinds(
        self, rules: Mapping[str, RateRule], entries: Sequence[Entry], keyed: Mapping[str, KeyedName]
    ) -> dict[str, str]:
        """The kind of each limit of these rules, for each key that may be fetched, and of those that entries hold."""
        found: dict[str, str] = {}
        for name, rule in rules.items():
            for limit in rule.limits:
                kind = self._kind(limit)
                if limit not in rule.by_key:
                    found[limit] = kind
                elif name in keyed:
                    found[limit] = "keyed"
                    found |= {f"{limit}|{key}": kind for key in keyed[name].heads}
        for entry in entries:
            if isinstance(entry.outcome, HeldBack):
                held = self._held(entry.name, entry.outcome.limits, consume.key_in(entry.token))
                found |= {limit: self._kind(limit) for limit in held if limit not in found}
            if entry.spent is not None:
                found |= {limit: self._kind(limit) for limit in entry.spent.marks if limit not in found}
        return found

    def freed_by(self, entries: Sequence[Entry]) -> set[str]:
        """The names that may start sooner because entries take back charges. The request must wake them."""
        if not self._rules:
            return set()
        freed = {
            limit.partition("|")[0]
            for entry in entries
            if entry.spent is not None and entry.spent.units < 0
            for limit in entry.spent.marks
        }
        return {name for name, rule in self._rules.items() if not freed.isdisjoint(rule.limits)}

    def _held(self, name: str, limits: Sequence[str], key: str | None) -> tuple[str, ...]:
        """These limits of a name as they count a job with this key."""
        rule = self._rules.get(name)
        return tuple(
            limit if key is None or rule is None or limit not in rule.by_key else f"{limit}|{key}"
            for limit in limits
        )

    def charge(self, name: str, marks: Mapping[str, str], at: float, key: str | None) -> Charge | None:
        """What an attempt of this name and key was charged at a Redis time; None if the name has no rate limits."""
        rule = self._rules.get(name)
        if rule is None:
            return None
        limits = rule.limits if key is None else rule.of_key(key)
        return Charge(rule.cost, {one: marks.get(one, "") for one in limits}, at)

    def key(self, name: str) -> KeyRule | None:
        """The key of a name; None if it has none."""
        rule = self._rules.get(name)
        return None if rule is None else rule.key

    def read_again(self, names: Sequence[str]) -> bool:
        """Read the rules from Redis, because they differ for `names`. Returns whether the pool learned something."""
        table = self._link.run(rates.rate_table(self._keys))
        rules = {name: rule for name, rule in table.rules.items() if name in self._job_types}
        # A limit that an operator lifted has the kind that the code declares.
        defined = {
            limit: table.declared.get(limit, text) if text == "lifted" else text
            for limit, text in table.definitions.items()
        }
        kinds = {limit: rates.kind_of(text) for limit, text in defined.items()}
        learned = (rules, kinds) != (self._rules, self._kinds)
        self._rules, self._kinds = rules, kinds
        for name, job_type in self._job_types.items():
            job_type.rated = name in rules and bool(rules[name].limits)
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
        return self._kinds.get(limit.partition("|")[0], "rate")
