"""Op: one request to Redis as a value. `Link` and `AsyncLink` send it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from dayjob.store.scripts import Script

T = TypeVar("T")
Arg = str | bytes | int | float


class Op(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A command with its keys and arguments, and a function that reads the reply."""

    command: Script | str
    keys: Sequence[Arg]
    args: Sequence[Arg]
    read: Callable[[Any], T]

    @property
    def writes(self) -> bool:
        """Whether a reply proves that the server accepts writes. Plain commands prove nothing: a blocking one may be old."""
        return not isinstance(self.command, str) and self.command.writes


def add_key(key_list: list[Arg], key: str) -> int:
    """Add a key to those of a request. Returns its index as scripts count, or 0 if there is no key."""
    if not key:
        return 0
    key_list.append(key)
    return len(key_list)


def texts(reply: Iterable[bytes]) -> list[str]:
    """The ids or tokens in a reply. Skips values that are not UTF-8: dayjob did not write them and cannot use them."""
    values = list(reply)
    try:
        return [raw.decode() for raw in values]
    except UnicodeDecodeError:
        found: list[str] = []
        for raw in values:
            with contextlib.suppress(UnicodeDecodeError):
                found.append(raw.decode())
        return found


def plain(command: str, *args: Arg) -> Op[Any]:
    """A plain command whose reply is returned unchanged."""
    return Op(command, (), args, lambda reply: reply)
