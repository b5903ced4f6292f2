"""How far one enqueue travels through the code: few calls in few files, so that it can be read from top to bottom."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import dayjob
from dayjob import WorkerPool

ROOT = Path(dayjob.__file__).parent

#: Raise these only with a reason: each call costs time on every enqueue, and each file is one more to read. The files
#: are one for each role: job type, arguments, sender, builder, job, request, steps, op and link.
MAX_CALLS = 25
MAX_FILES = 9


def test_one_enqueue_makes_few_calls_in_few_files(redis_url, namespace):
    """Counts each entry of a Python function or generator whose code is in the package, on a warm connection."""
    pool = WorkerPool(namespace=namespace, redis=redis_url)

    @pool.job
    def handler(user_id: int) -> None: ...

    for _ in range(2):
        handler.enqueue(user_id=7)
    calls: list[str] = []

    def count(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            calls.append(f"{path.relative_to(ROOT)}:{frame.f_code.co_name}")

    sys.setprofile(count)
    try:
        handler.enqueue(user_id=7)
    finally:
        sys.setprofile(None)
    pool.enqueuer.close()
    assert calls[0] == "handlers/registry.py:enqueue"
    assert "store/link.py:run" in calls
    assert len(calls) <= MAX_CALLS, calls
    assert len({call.partition(":")[0] for call in calls}) <= MAX_FILES, calls
