"""How far one enqueue travels through the code: few calls in few files, so that it can be read from top to bottom."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import dayjob
from dayjob import Enqueuer, WorkerPool

ROOT = Path(dayjob.__file__).parent

#: Raise these only with a reason: each call costs time on every enqueue, and each file is one more to read. The files
#: are one for each role: the public class, arguments, sender, builder, job, op and link. Any two of them together have
#: more than 500 lines. `job.py` is on the path because Job needs a constructor in Python: its parameters `args` and
#: `headers` are also properties, which are decoded at first use.
MAX_CALLS = 25
MAX_FILES = 7


def traced(enqueue: Callable[[], object]) -> list[str]:
    """Each entry of a Python function or generator whose code is in the package, once the connection is warm."""
    for _ in range(2):
        enqueue()
    calls: list[str] = []

    def count(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            calls.append(f"{path.relative_to(ROOT)}:{frame.f_code.co_name}")

    sys.setprofile(count)
    try:
        enqueue()
    finally:
        sys.setprofile(None)
    return calls


def check(calls: list[str], first: str) -> None:
    assert calls[0] == first
    assert "store/link.py:run" in calls
    assert len(calls) <= MAX_CALLS, calls
    assert len({call.partition(":")[0] for call in calls}) <= MAX_FILES, calls


def test_an_enqueue_by_the_function_makes_few_calls_in_few_files(redis_url, namespace):
    pool = WorkerPool(namespace=namespace, redis=redis_url)

    @pool.job
    def handler(user_id: int) -> None: ...

    calls = traced(lambda: handler.enqueue(user_id=7))
    pool.enqueuer.close()
    check(calls, "handlers/registry.py:enqueue")


def test_an_enqueue_by_name_makes_few_calls_in_few_files(redis_url, namespace):
    enqueuer = Enqueuer(namespace, redis=redis_url)
    calls = traced(lambda: enqueuer.enqueue("handler", user_id=7))
    enqueuer.close()
    check(calls, "enqueue/enqueuer.py:enqueue")
