"""Limits: brings the concurrency limits that job types declare into force, without ever undercounting."""

from __future__ import annotations

from collections.abc import Mapping

from dayjob.store.keys import Keys
from dayjob.store.ops import consume
from dayjob.worker.reaper import Runs


def declare(keys: Keys, link: Runs, wanted: Mapping[str, int | None]) -> None:
    """Set the limits of these names as their code says, except where an operator set them otherwise."""
    in_force, by_operator = link.run(consume.get_limits(keys))
    for name, limit in wanted.items():
        if name in by_operator or in_force.get(name) == limit:
            continue
        set_limit(keys, link, name, limit, by="code")


def set_limit(keys: Keys, link: Runs, name: str, limit: int | None, *, by: str) -> None:
    """Set or lift a limit. Attempts held before the name had one are counted before it opens."""
    in_force, _ = link.run(consume.get_limits(keys))
    if limit is not None and name not in in_force:
        # Closed while the attempts that run already are counted, or more than the limit could run.
        link.run(consume.set_limit(keys, name, 0, by=by))
        for pool_id in link.run(consume.pool_ids(keys)) + link.run(consume.condemned_ids(keys)):
            tokens = link.run(consume.held_tokens(keys, pool_id))
            own = [token for token in tokens if consume.name_in(token) == name]
            for first in range(0, len(own), 500):
                link.run(consume.seed_limit(keys, name, pool_id, own[first : first + 500]))
    link.run(consume.set_limit(keys, name, limit, by=by))
