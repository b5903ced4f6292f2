"""The runner: what becomes of an attempt that its pool has given up."""

from __future__ import annotations

import contextvars
import random
import time

import pytest

from dayjob import WorkerPool
from dayjob.outcome import GivenBack, Retried
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.runner import Runner
from dayjob.worker.state import PoolState


class Pending:
    """Something that is awaited and never arrives."""

    def __await__(self):
        yield


@pytest.mark.parametrize("stopping", [True, False])
def test_an_async_handler_that_is_deleted_has_failed_unless_its_pool_has_stopped(stopping):
    """A handler that swallows its cancellation outlives its event loop. Then its coroutine is deleted."""
    failed: list[BaseException] = []

    async def wait(_context, _job) -> None:
        await Pending()

    pool = WorkerPool()
    job_type = pool.register("held", wait, on_fail=lambda job, error: failed.append(error))
    state = PoolState()
    payload = b'{"name":"held","id":"1","t":1,"args":{}}'
    attempt = Attempt("1:held", "held", payload, codec.read(payload), PoolJobType(job_type, wait, state))
    runner = Runner(Keys("n"), lambda: "pool", object, time.time, random.Random(), max_result=1 << 20)
    running = runner.arun(attempt)
    # As in a task, the runner's variables are not those of the caller.
    context = contextvars.Context()
    context.run(running.send, None)
    state.stopping = stopping
    with pytest.raises(StopIteration) as ended:
        context.run(running.throw, GeneratorExit())
    assert isinstance(ended.value.value.outcome, GivenBack if stopping else Retried)
    assert len(failed) == int(not stopping)
