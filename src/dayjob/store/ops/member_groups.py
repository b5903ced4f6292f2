"""Completed members of a batch that an exchange settles together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dayjob.store.keys import Keys
from dayjob.store.op import Arg
from dayjob.store.ops.batches import above_keys


class MemberGroup(NamedTuple):
    """Plain completions of members of one batch."""

    #: The id of the batch and of those above it, and its numbers in these.
    ids: Sequence[str]
    above: Sequence[int]
    #: The numbers of the members, and the tokens of their attempts by job name.
    numbers: Sequence[int]
    tokens: Mapping[str, Sequence[str]]

    def args(self, index: Mapping[str, int]) -> list[Arg]:
        """The members as the script reads them; `index` has the indexes of job names."""
        bits = bit_args(self.numbers)
        args: list[Arg] = [len(bits), *bits]
        for name, tokens in self.tokens.items():
            args += (index[name], len(tokens), *tokens)
        return args


#: The most bits that one part of BITFIELD can set.
_MAX_BITS = 63


def bit_args(numbers: Sequence[int]) -> list[Arg]:
    """The arguments of BITFIELD that set these bits: one part for each run of consecutive numbers."""
    args: list[Arg] = []
    ordered = sorted(numbers)
    first = last = ordered[0]
    for number in ordered[1:]:
        if number > last + 1 or number - first == _MAX_BITS:
            args += _run_args(first, last)
            first = number
        last = number
    args += _run_args(first, last)
    return args


def _run_args(first: int, last: int) -> tuple[Arg, ...]:
    width = last - first + 1
    return "SET", f"u{width}", first, (1 << width) - 1


def group_args(
    keys: Keys, group: MemberGroup, index: Mapping[str, int], key_list: list[Arg]
) -> tuple[Arg, ...]:
    """The arguments of the entry for members of one batch. Appends their keys to `key_list`."""
    first = len(key_list) + 1
    key_list += above_keys(keys, group.ids)
    above, more = " ".join(map(str, group.above)), group.args(index)
    return "members", 0, group.ids[0], b"", len(more), first, above, *more
