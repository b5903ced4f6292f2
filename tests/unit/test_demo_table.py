"""The table that `dayjob demo` draws in a terminal."""

from __future__ import annotations

from types import SimpleNamespace

from dayjob.cli.demo import Snapshot, _table


def test_the_columns_are_aligned_below_a_long_job_name():
    queues = [
        SimpleNamespace(name=name, size=size, limit=None)
        for name, size in (("mail", 1_234), ("report_missing_prices", 7))
    ]
    sizes = SimpleNamespace(scheduled=0, retry=0, dead=0)
    snapshot = Snapshot(at=0.0, queues=queues, sizes=sizes, totals={}, running={})
    _, head, *rows, _, _ = _table(snapshot, snapshot, snapshot)
    end = head.index("waiting") + len("waiting")
    assert [row[:end].split() for row in rows] == [["mail", "1,234"], ["report_missing_prices", "7"]]
    assert {len(row) for row in rows} == {len(head)}
