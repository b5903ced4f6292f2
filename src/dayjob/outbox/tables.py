"""The two tables of an outbox, and all SQL on them. `execute` hides which library speaks to the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from dayjob.errors import BadOption
from dayjob.outbox.rows import COLUMNS, OutboxRow

#: Runs one statement with named parameters, written as %(name)s. Returns the rows, and how many were changed.
Execute = Callable[[str, Mapping[str, Any]], tuple[list[Any], int]]
Dialect = Literal["postgresql", "sqlite"]

#: Rows that one round of the relay sends.
MAX_ROWS = 500
#: Rows that one round deletes.
MAX_DELETED = 1000

_SERIAL = {"postgresql": "BIGSERIAL PRIMARY KEY", "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT"}
_BYTES = {"postgresql": "BYTEA", "sqlite": "BLOB"}


def schema(dialect: Dialect) -> list[str]:
    """The statements that make the tables, for your migrations. Raises BadOption."""
    if dialect not in _SERIAL:
        raise BadOption(f"an outbox needs PostgreSQL or SQLite, not {dialect!r}")
    columns = (
        f"seq {_SERIAL[dialect]}, id VARCHAR(200) NOT NULL UNIQUE, namespace VARCHAR(200) NOT NULL,"
        f" name VARCHAR(200) NOT NULL, payload {_BYTES[dialect]} NOT NULL, due DOUBLE PRECISION, unique_key TEXT,"
        " unique_for DOUBLE PRECISION, expires DOUBLE PRECISION, created DOUBLE PRECISION NOT NULL,"
        " sent DOUBLE PRECISION"
    )
    return [
        f"CREATE TABLE IF NOT EXISTS dayjob_outbox ({columns})",
        "CREATE INDEX IF NOT EXISTS dayjob_outbox_unsent ON dayjob_outbox (seq) WHERE sent IS NULL",
        "CREATE INDEX IF NOT EXISTS dayjob_outbox_sent ON dayjob_outbox (sent) WHERE sent IS NOT NULL",
        "CREATE TABLE IF NOT EXISTS dayjob_done (id VARCHAR(300) PRIMARY KEY, at DOUBLE PRECISION NOT NULL)",
    ]


def insert(execute: Execute, row: OutboxRow) -> None:
    """Add a row to the caller's transaction."""
    names = ", ".join(COLUMNS)
    values = ", ".join(f"%({name})s" for name in COLUMNS)
    execute(f"INSERT INTO dayjob_outbox ({names}) VALUES ({values})", row.values())  # noqa: S608 - fixed names


def take_unsent(execute: Execute, namespace: str, before: float, *, lock: bool) -> list[OutboxRow]:
    """Rows that were committed and not sent, in the order of their transactions' statements.

    With `lock`, other relays pass over them until this transaction ends.
    """
    found, _ = execute(
        f"SELECT {', '.join(COLUMNS)} FROM dayjob_outbox"  # noqa: S608 - fixed names
        " WHERE sent IS NULL AND namespace = %(namespace)s AND created <= %(before)s"
        f" ORDER BY seq LIMIT {MAX_ROWS}{' FOR UPDATE SKIP LOCKED' if lock else ''}",
        {"namespace": namespace, "before": before},
    )
    return [OutboxRow.of(tuple(one)) for one in found]


def mark_sent(execute: Execute, ids: Collection[str]) -> None:
    """Note that these rows are stored in Redis."""
    for job_id in ids:
        execute(
            "UPDATE dayjob_outbox SET sent = %(now)s WHERE id = %(id)s AND sent IS NULL",
            {"now": time.time(), "id": job_id},
        )


def delete_old(execute: Execute, namespace: str, sent_before: float, done_before: float) -> None:
    """Delete rows that were sent long enough ago, and old marks of `job.once`; a bounded number."""
    execute(
        "DELETE FROM dayjob_outbox WHERE id IN (SELECT id FROM dayjob_outbox WHERE sent < %(before)s"
        " AND namespace = %(namespace)s ORDER BY sent LIMIT %(most)s)",
        {"before": sent_before, "namespace": namespace, "most": MAX_DELETED},
    )
    execute(
        "DELETE FROM dayjob_done WHERE id IN (SELECT id FROM dayjob_done WHERE at < %(before)s"
        " AND substr(id, 1, 6) <> 'redis ' LIMIT %(most)s)",
        {"before": done_before, "most": MAX_DELETED},
    )


def count_unsent(execute: Execute, namespace: str) -> tuple[int, float | None]:
    """How many rows were not sent, and when the oldest of them was written."""
    found, _ = execute(
        "SELECT COUNT(*), MIN(created) FROM dayjob_outbox WHERE sent IS NULL AND namespace = %(namespace)s",
        {"namespace": namespace},
    )
    return found[0][0], found[0][1]


def add_done(execute: Execute, key: str) -> bool:
    """Note in the caller's transaction that something was done. Returns whether this is the first time."""
    _, changed = execute(
        "INSERT INTO dayjob_done (id, at) VALUES (%(id)s, %(now)s) ON CONFLICT (id) DO NOTHING",
        {"id": key, "now": time.time()},
    )
    return changed == 1


def meet_server(execute: Execute, namespace: str, server: str) -> int:
    """Note the identity of the Redis server. If it is new, all kept rows must be sent again; returns how many.

    A server that was restarted, or a replica that took over, may lack what its predecessor had acknowledged.
    """
    mark = f"redis {namespace} "
    if not add_done(execute, mark + server):
        return 0
    _, known = execute(
        "DELETE FROM dayjob_done WHERE substr(id, 1, %(size)s) = %(mark)s AND id <> %(own)s",
        {"size": len(mark), "mark": mark, "own": mark + server},
    )
    if not known:
        return 0
    _, changed = execute(
        "UPDATE dayjob_outbox SET sent = NULL WHERE sent IS NOT NULL AND namespace = %(namespace)s",
        {"namespace": namespace},
    )
    return changed


def execute_all(execute: Execute, statements: Sequence[str]) -> None:
    """Run statements without parameters."""
    for statement in statements:
        execute(statement, {})
