"""Limits: writes the limits of job types to Redis, and restores what they count. Limits of an operator take precedence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from dayjob.errors import Rejected
from dayjob.limits import Limit
from dayjob.options import JobOptions
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.link import walk
from dayjob.store.ops import concurrency, key_changes, membership, operate, partitions, rates
from dayjob.store.ops.membership import PROTOCOL
from dayjob.store.ops.rates import HeldStart, RateRule
from dayjob.store.steps import Runs
from dayjob.worker.state import PoolState

logger = SafeLogger("dayjob.worker")

#: How many starts one call restores; the oldest count least, and are left out.
MAX_RESTORED = 2000


def declare(keys: Keys, link: Runs, wanted: Mapping[str, int | None]) -> None:
    """Set the limits that the code declares, except where an operator set another."""
    in_force, by_operator = link.run(concurrency.get_limits(keys))
    for name, limit in wanted.items():
        if name not in by_operator and in_force.get(name) != limit:
            walk(link, operate.set_concurrency_limit(keys, name, limit, by="code"))


def restore(keys: Keys, link: Runs, wanted: Mapping[str, int | None]) -> None:
    """Set the declared limits that are missing in Redis, except where an operator removed them."""
    table = link.run(concurrency.limit_table(keys))
    for name, limit in wanted.items():
        if limit is not None and name not in table.in_force and name not in table.lifted:
            walk(link, operate.set_concurrency_limit(keys, name, limit, by="code"))


def declare_rates(keys: Keys, link: Runs, job_types: Mapping[str, JobOptions]) -> set[str]:
    """Define the rate limits that the code declares, and set the rules of these job names.

    Returns the names whose keys must wait, because a live pool of an older version does not understand keys.
    """
    waiting = _waiting_for_older_pools(keys, link, job_types)
    table = link.run(rates.rate_table(keys))
    for limit in _limits(job_types):
        if table.declared.get(limit.name) != limit.kind.definition() or limit.name not in table.definitions:
            link.run(rates.declare(keys, limit))
    for name, options in job_types.items():
        rule, before = _rule(options, without_key=name in waiting), table.rules.get(name)
        if before != rule:
            walk(link, key_changes.put_rule(keys, name, rule))
            if before is not None and before.key is not None and (rule is None or rule.key is None):
                walk(link, partitions.unsort(keys, name))
    return waiting


def restore_rates(
    keys: Keys, link: Runs, job_types: Mapping[str, JobOptions], waited: Collection[str] = ()
) -> set[str]:
    """Define the rate limits, and set the rules, that are missing in Redis; and the keys that `waited` for older pools.

    Returns the names whose keys must still wait.
    """
    waiting = _waiting_for_older_pools(keys, link, job_types)
    table = link.run(rates.rate_table(keys))
    for limit in _limits(job_types):
        if limit.name not in table.declared or limit.name not in table.definitions:
            link.run(rates.declare(keys, limit))
    for name, options in job_types.items():
        rule = _rule(options, without_key=name in waiting)
        missing = name not in table.rules or (name in waited and name not in waiting)
        if rule is not None and missing:
            walk(link, key_changes.put_rule(keys, name, rule))
    return waiting


def _rule(options: JobOptions, *, without_key: bool) -> RateRule | None:
    """The rule of a job type; without its key, and without the limits that count by it, while these must wait."""
    rule = rates.rule_of(options)
    if rule is None or not without_key:
        return rule
    limits = tuple(one for one in rule.limits if one not in rule.by_key)
    return RateRule(rule.cost, limits) if limits else None


def _waiting_for_older_pools(keys: Keys, link: Runs, job_types: Mapping[str, JobOptions]) -> set[str]:
    """The names with keys, if a live pool does not understand keys."""
    keyed = {name for name, options in job_types.items() if options.fair_by is not None}
    if not keyed:
        return set()
    older = [one for one, protocol in walk(link, membership.protocols(keys)).items() if protocol < PROTOCOL]
    if not older:
        return set()
    logger.warning(
        "job=%s: limits by key and fairness begin when the last pool of an older version has stopped (now: %s)",
        ", ".join(sorted(keyed)), ", ".join(sorted(older)[:5]),
    )  # fmt: skip
    return keyed


class StartRestorer:
    """Makes rate limits count what this pool runs, if a key of a limit was deleted."""

    def __init__(self, keys: Keys, link: Runs) -> None:
        self._keys = keys
        self._link = link
        #: Limit to the epoch of its restored state that has the attempts of this pool.
        self._restored: dict[str, str] = {}

    def restore(self, state: PoolState) -> None:
        """Count the attempts that this pool holds where a limit does not. A pool without rate limits sends nothing."""
        starts: dict[str, list[HeldStart]] = defaultdict(list)
        for attempt in sorted(
            state.held.copy().values(), key=lambda one: one.charge.at if one.charge else 0.0
        ):
            charge = attempt.charge
            if charge is not None and charge.at:
                for limit in charge.marks:
                    starts[limit].append(HeldStart(attempt.token, charge.at, charge.cost))
        if not starts:
            return
        try:
            table = self._link.run(rates.rate_table(self._keys))
            asked = {
                limit: (
                    rates.kind_of(table.definitions.get(limit.partition("|")[0], "")),
                    self._restored.get(limit, ""),
                    some[-MAX_RESTORED:],
                )
                for limit, some in starts.items()
            }
            self._restored = self._link.run(rates.restore_starts(self._keys, state.pool_id, asked))
        except Rejected as error:
            logger.error("what rate limits count cannot be restored: %s", error)  # noqa: TRY400


def _limits(job_types: Mapping[str, JobOptions]) -> list[Limit]:
    return list({limit.name: limit for options in job_types.values() for limit in options.limits}.values())
