"""Worker pools of gocraft/work in the namespace: what they do to jobs of dayjob. Reads only."""

from __future__ import annotations

from dayjob.admin.findings import Finding, ok, warning
from dayjob.store.keys import Keys
from dayjob.store.ops import concurrency, maintain, rates
from dayjob.store.ops.gocraft import gocraft_pools
from dayjob.store.steps import Steps, ask
from dayjob.text import listed


def check_gocraft(keys: Keys, now: float) -> Steps[list[Finding]]:
    """Whether pools of gocraft/work exceed limits of dayjob, or kill jobs that they do not know."""
    found = yield from gocraft_pools(keys, now)
    if not found:
        return []
    where = f"gocraft/work also runs here ({listed([one.place for one in found])})"
    runs = {name for one in found for name in one.names}
    limited = yield from _limited(keys)
    known = yield from ask(maintain.known_jobs(keys))
    findings: list[Finding] = []
    if runs & limited:
        what = f"{where}: it obeys no limit and no key of dayjob, and runs {listed(sorted(runs & limited))}"
        todo = "run names with limits in dayjob alone, or divide the limit between both"
        findings.append(warning("gocraft", what, todo))
    unknown = {name for one in found for name in known if name not in one.names}
    if unknown:
        what = f"{where}: it kills scheduled jobs and retries of names that it does not have: {listed(sorted(unknown))}"
        todo = "register these names in every Go pool, or use another namespace for them"
        findings.append(warning("gocraft", what, todo))
    return findings or [ok("gocraft", f"{where}, has all names, and none of them has a limit")]


def _limited(keys: Keys) -> Steps[set[str]]:
    """The names with a limit of any kind, or with keys."""
    plain, _ = yield from ask(concurrency.get_limits(keys))
    table = yield from ask(rates.rate_table(keys))
    return {*plain, *table.rules}
