"""What makes an import at first use, and an attribute that is made at first use, safe in a program that forks."""

from __future__ import annotations

import logging  # noqa: F401 - see FORK_SAFE
import os
import threading
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")

#: Held during an import at first use, and during every fork. A child that is forked in the middle of an import by another
#: thread would wait forever for the lock of that module. `logging`, whose lock an import may need, is imported above: a
#: fork takes locks in the reverse order of their registration, and must take this one first.
FORK_SAFE = threading.RLock()
# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORK_SAFE.acquire, after_in_parent=FORK_SAFE.release, after_in_child=FORK_SAFE.release
    )


class MadeOnce(Generic[T]):
    """An attribute that is made at first use and then is a plain attribute, so that reading it costs no call.

    Unlike functools.cached_property it has no lock. Another thread could hold it when the process forks, and it would
    then stay locked in the child.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, pool: None, owner: type) -> Self: ...
    @overload
    def __get__(self, pool: object, owner: type) -> T: ...

    def __get__(self, pool: object | None, owner: type) -> T | Self:
        if pool is None:
            return self
        # setdefault makes two threads that get here at once use the same one.
        made: T = pool.__dict__.setdefault(self._make.__name__, self._make(pool))
        return made
