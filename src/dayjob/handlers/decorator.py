"""The types of `@pool.job` for type checkers: what a decorated function becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar, overload

from dayjob.handlers.registry import JobType
from dayjob.job import Job

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")


class Anything:
    """Matches only a parameter that accepts anything: annotated with Any or object, or without an annotation.

    Such a first parameter may be the context, the job or an argument. A type checker cannot know which, so calls that
    enqueue such a handler are checked at run time only.
    """


class Decorator(Protocol[C]):
    """The type of `@pool.job(...)`: takes a function and returns a job type.

    The order of the overloads matters: first those whose parameters accept anything, then those with context and job,
    with one of them, and with neither.
    """

    @overload
    def __call__(self, fn: Callable[Concatenate[Anything, P], R], /) -> JobType[..., ..., R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[C, Anything, P], R], /) -> JobType[..., ..., R]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[C, Job, P], R], /
    ) -> JobType[Concatenate[C, Job, P], P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Job, P], R], /) -> JobType[Concatenate[Job, P], P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[C, P], R], /) -> JobType[Concatenate[C, P], P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> JobType[P, P, R]: ...
