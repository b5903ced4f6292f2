"""Limits: writes the limits of job types to Redis, and restores what they count. Limits of an operator take precedence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from dayjob.errors import Rejected
from dayjob.limits import Limit
from dayjob.options import JobOptions
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.ops import concurrency, operate, partitions, rates
from dayjob.store.ops.rates import HeldStart
from dayjob.store.steps import Runs, walk
from dayjob.worker.state import PoolState

logger = SafeLogger("dayjob.worker")

#: How many starts one call restores; the oldest count least, and are left out.
MAX_RESTORED = 2000


def declare(keys: Keys, link: Runs, wanted: Mapping[str, int | None]) -> None:
    """Set the limits that the code declares, except where an operator set another."""
    in_force, by_operator = link.run(concurrency.get_limits(keys))
    for name, limit in wanted.items():
        if name not in by_operator and in_force.get(name) != limit:
            walk(link, operate.set_limit(keys, name, limit, by="code"))


def restore(keys: Keys, link: Runs, wanted: Mapping[str, int | None]) -> None:
    """Set the declared limits that are missing in Redis, except where an operator removed them."""
    table = link.run(concurrency.limit_table(keys))
    for name, limit in wanted.items():
        if limit is not None and name not in table.in_force and name not in table.lifted:
            walk(link, operate.set_limit(keys, name, limit, by="code"))


def declare_rates(keys: Keys, link: Runs, job_types: Mapping[str, JobOptions]) -> None:
    """Define the rate limits that the code declares, and set the rules of these job names."""
    table = link.run(rates.rate_table(keys))
    for limit in _limits(job_types):
        if table.declared.get(limit.name) != limit.kind.definition() or limit.name not in table.definitions:
            link.run(rates.declare(keys, limit))
    for name, options in job_types.items():
        rule, before = rates.rule_of(options), table.rules.get(name)
        if before != rule:
            link.run(rates.change_rule(keys, name, rule))
            if before is not None and before.key is not None and (rule is None or rule.key is None):
                walk(link, partitions.unsort(keys, name))


def restore_rates(keys: Keys, link: Runs, job_types: Mapping[str, JobOptions]) -> None:
    """Define the rate limits, and set the rules, that are missing in Redis."""
    table = link.run(rates.rate_table(keys))
    for limit in _limits(job_types):
        if limit.name not in table.declared or limit.name not in table.definitions:
            link.run(rates.declare(keys, limit))
    for name, options in job_types.items():
        rule = rates.rule_of(options)
        if rule is not None and name not in table.rules:
            link.run(rates.change_rule(keys, name, rule))


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
