"""Limits: writes the concurrency limits of job types to Redis. Limits that an operator set take precedence."""

from __future__ import annotations

from collections.abc import Mapping

from dayjob.store.keys import Keys
from dayjob.store.ops import consume, operate
from dayjob.store.steps import Runs, walk


def declare(keys: Keys, link: Runs, wanted: Mapping[str, int | None]) -> None:
    """Set the limits that the code declares, except where an operator set another."""
    in_force, by_operator = link.run(consume.get_limits(keys))
    for name, limit in wanted.items():
        if name not in by_operator and in_force.get(name) != limit:
            walk(link, operate.set_limit(keys, name, limit, by="code"))


def restore(keys: Keys, link: Runs, wanted: Mapping[str, int | None]) -> None:
    """Set the declared limits that are missing in Redis, except where an operator removed them."""
    table = link.run(consume.limit_table(keys))
    for name, limit in wanted.items():
        if limit is not None and name not in table.in_force and name not in table.lifted:
            walk(link, operate.set_limit(keys, name, limit, by="code"))
