"""Steps: a sequence of requests as a generator, for reads and actions that need more than one Op.

The generator yields an Op, a list of Ops for one round trip, or a Step, and receives the answers. A StoreError is thrown
into it. `walk` of `link.py` and `awalk` of `async_link.py` run it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol, TypeVar

from dayjob.store.op import Op

T = TypeVar("T")


class Step(Protocol):
    """A step that is more than a request. It runs itself over the link of the walk."""

    def run(self, link: Any, /) -> Any: ...

    async def arun(self, link: Any, /) -> Any: ...


#: A generator that yields requests and other steps, and returns a T.
Steps = Generator[Op[Any] | list[Op[Any]] | Step, Any, T]


def ask(op: Op[T]) -> Steps[T]:
    """Send one request and return its typed answer; use it with `yield from`."""
    answer: T = yield op
    return answer


def ask_all(ops: Sequence[Op[T]]) -> Steps[list[T]]:
    """Send several requests in one round trip and return their answers; use it with `yield from`."""
    if not ops:
        return []
    answers: list[T] = yield list(ops)
    return answers


class Runs(Protocol):
    """What `walk` needs: a Link, a SharedLink or a Sender."""

    def run(self, op: Op[T], /) -> T: ...

    def run_many(self, ops: Sequence[Op[Any]], /) -> list[Any]: ...


class AsyncRuns(Protocol):
    """What `awalk` needs: an AsyncLink or an AsyncSender."""

    async def run(self, op: Op[T], /) -> T: ...

    async def run_many(self, ops: Sequence[Op[Any]], /) -> list[Any]: ...
