"""Op: one request to Redis as a value. Two thin drivers send it, sync.py and aio.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from dayjob.store.scripts import Script

T = TypeVar("T")
Arg = str | bytes | int | float


class Op(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What to send, and how to read the answer."""

    command: Script | str
    keys: Sequence[Arg]
    args: Sequence[Arg]
    read: Callable[[Any], T]

    @property
    def writes(self) -> bool:
        """Whether an answer shows that the server takes writes; that of a blocking command may date from before."""
        return not isinstance(self.command, str) and self.command.writes

    def words(self, *, whole_script: bool = False) -> list[Arg]:
        """The command as it goes over the wire; a script by its digest, or whole where the server lacks it."""
        if isinstance(self.command, str):
            return [self.command, *self.keys, *self.args]
        if whole_script:
            return ["EVAL", self.command.source, len(self.keys), *self.keys, *self.args]
        return ["EVALSHA", self.command.sha, len(self.keys), *self.keys, *self.args]


def texts(reply: Iterable[bytes]) -> list[str]:
    """The ids or tokens in a reply. What is no text was not written by us, and can neither be asked for nor stop the others."""
    found: list[str] = []
    for raw in reply:
        with contextlib.suppress(UnicodeDecodeError):
            found.append(raw.decode())
    return found


def plain(command: str, *args: Arg) -> Op[Any]:
    """A plain command whose answer is passed on as it is."""
    return Op(command, (), args, lambda reply: reply)
