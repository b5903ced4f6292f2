"""Gaps: places in the arguments of a node that the result of another node fills when the node starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

#: A place in the arguments: names of arguments and keys, and indexes of lists.
Path = tuple[str | int, ...]


class Gap:
    """Stands for the result of a node until that has ended."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"<result of {self.node!r}>"


def gaps_in(value: Any, path: Path = ()) -> Iterator[tuple[Any, Path]]:
    """The nodes whose results a value has, in lists, tuples and dicts too, each with its place."""
    if isinstance(value, Gap):
        yield value.node, path
    elif isinstance(value, list | tuple):
        for i, one in enumerate(value):
            yield from gaps_in(one, (*path, i))
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from gaps_in(one, (*path, key))


def emptied(value: Any) -> Any:
    """The value with None instead of gaps."""
    if isinstance(value, Gap):
        return None
    if isinstance(value, list | tuple):
        return [emptied(one) for one in value]
    if isinstance(value, dict):
        return {key: emptied(one) for key, one in value.items()}
    return value


class _Result(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(b"null")


_read_result = msgspec.json.Decoder(_Result).decode
_read_takes = msgspec.json.Decoder(list[list[str | int]]).decode


def takes_of(raw: msgspec.Raw) -> list[tuple[int, Path]]:
    """How many nodes before its own a node takes results of, each with its place. Raises ValueError, MsgspecError."""
    return [(int(before), tuple(path)) for before, *path in _read_takes(raw)]


def filled(args: bytes | msgspec.Raw, places: Sequence[Path], results: Sequence[bytes | None]) -> bytes:
    """The arguments with results, as JSON, in these places. A node without a result gives None.

    Raises TypeError, ValueError, LookupError or MsgspecError if the places are not there.
    """
    found = msgspec.json.decode(args)
    for path, raw in zip(places, results, strict=True):
        where = found
        for step in path[:-1]:
            where = where[step]
        where[path[-1]] = _read_result(raw).result if raw else None
    return msgspec.json.encode(found)
