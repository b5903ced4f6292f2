"""Limits: brings the concurrency limits that job types declare into force, except where an operator decided."""

from __future__ import annotations

from collections.abc import Mapping

from dayjob.store.keys import Keys
from dayjob.store.ops import consume, operate
from dayjob.store.steps import Runs, walk


def declare(keys: Keys, link: Runs, wanted: Mapping[str, int | None]) -> None:
    """Set the limits of these names as their code says, except where an operator set them otherwise."""
    in_force, by_operator = link.run(consume.get_limits(keys))
    for name, limit in wanted.items():
        if name not in by_operator and in_force.get(name) != limit:
            walk(link, operate.set_limit(keys, name, limit, by="code"))


def restore(keys: Keys, link: Runs, wanted: Mapping[str, int | None]) -> None:
    """Set those limits that are missing, except where an operator lifted them."""
    table = link.run(consume.limit_table(keys))
    for name, limit in wanted.items():
        if limit is not None and name not in table.in_force and name not in table.lifted:
            walk(link, operate.set_limit(keys, name, limit, by="code"))
