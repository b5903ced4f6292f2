"""The limits on how many jobs of a name run at once, in all pools together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.scripts import load


@dataclass(frozen=True, slots=True)
class LimitTable:
    """The content of the hash `limits`."""

    in_force: dict[str, int]
    #: Names whose limit an operator set, and names whose limit an operator removed.
    by_operator: set[str]
    lifted: set[str]
    #: Name to the mark of the count in progress for its new limit.
    counting: dict[str, str]


def get_limits(keys: Keys) -> Op[tuple[dict[str, int], set[str]]]:
    """The limits in force, and the names whose limit an operator set."""
    return Op("HGETALL", (keys.limits,), (), lambda reply: _read_limits(reply)[:2])


def limit_table(keys: Keys) -> Op[LimitTable]:
    """The limits in force, who set them, and those that are being changed."""
    return Op("HGETALL", (keys.limits,), (), lambda reply: LimitTable(*_read_limits(reply)))


def _read_limits(reply: Any) -> tuple[dict[str, int], set[str], set[str], dict[str, str]]:
    words = [raw.decode("utf-8", "replace") for raw in reply]
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    # A rule of rate limits may stand behind the number. No job name has a colon, the definitions of limits have one.
    numbers = {name: value.partition(" ")[0] for name, value in pairs.items() if not {"|", ":"} & {*name}}
    limits = {name: int(number) for name, number in numbers.items() if number.isdecimal()}
    by = {name.removesuffix("|by"): value for name, value in pairs.items() if name.endswith("|by")}
    lifted = {name for name, value in by.items() if value == "lifted" and name not in limits}
    end = "|counting"
    counting = {name.removesuffix(end): mark for name, mark in pairs.items() if name.endswith(end)}
    return limits, {name for name in limits if by.get(name) == "operator"}, lifted, counting


def lift_limit(keys: Keys, name: str, *, by: str, actor: str = "") -> Op[bool]:
    """Remove the limit of a job name."""
    return Op(load("change_limit"), _limit_keys(keys, name), (name, "lift", "", by, "", actor), bool)


def begin_limit(keys: Keys, name: str, mark: str) -> Op[str]:
    """Count every attempt fetched from now on. Returns the mark of the count: `mark`, or that of a count in progress."""
    return Op(
        load("change_limit"), _limit_keys(keys, name), (name, "begin", mark), lambda reply: reply.decode()
    )


def finish_limit(keys: Keys, name: str, limit: int, *, by: str, mark: str, actor: str = "") -> Op[bool]:
    """Enforce a limit. False if attempts fetched since this count began may not have been counted."""
    return Op(load("change_limit"), _limit_keys(keys, name), (name, "finish", mark, by, limit, actor), bool)


def abandon_limit(keys: Keys, name: str, mark: str) -> Op[bool]:
    """Remove the mark of a count whose caller is gone. False if that count is no longer in progress."""
    return Op(load("change_limit"), _limit_keys(keys, name), (name, "abandon", mark), bool)


def _limit_keys(keys: Keys, name: str) -> tuple[str, ...]:
    return keys.limits, keys.held_of(name), keys.bell(name), keys.events("limit")
