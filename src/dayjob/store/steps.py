"""Steps: several requests in a row as a value, for reads and actions that one Op cannot say.

A generator yields an Op, or a list of them for one round trip, and is sent the answers; a refusal is thrown into it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol, TypeVar

from dayjob.errors import StoreError
from dayjob.store.op import Op

T = TypeVar("T")

#: What yields requests and returns a T.
Steps = Generator[Op[Any] | list[Op[Any]], Any, T]


def ask(op: Op[T]) -> Steps[T]:
    """One request, typed; to be used with `yield from`."""
    answer: T = yield op
    return answer


def ask_all(ops: Sequence[Op[T]]) -> Steps[list[T]]:
    """Several requests in one round trip."""
    if not ops:
        return []
    answers: list[T] = yield list(ops)
    return answers


class Runs(Protocol):
    """What a sync driver needs: a Link, or a shared one."""

    def run(self, op: Op[T], /) -> T: ...

    def run_many(self, ops: Sequence[Op[Any]], /) -> list[Any]: ...


class AsyncRuns(Protocol):
    """What an async driver needs: an AsyncLink."""

    async def run(self, op: Op[T], /) -> T: ...

    async def run_many(self, ops: Sequence[Op[Any]], /) -> list[Any]: ...


def walk(link: Runs, steps: Steps[T]) -> T:
    """Take the steps over a link; the answer is what they return. Raises StoreError that they do not catch."""
    try:
        request = next(steps)
        while True:
            try:
                answer = link.run_many(request) if isinstance(request, list) else link.run(request)
            except StoreError as error:
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def awalk(link: AsyncRuns, steps: Steps[T]) -> T:
    """The same, awaited."""
    try:
        request = next(steps)
        while True:
            try:
                answer = await (link.run_many(request) if isinstance(request, list) else link.run(request))
            except StoreError as error:
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
