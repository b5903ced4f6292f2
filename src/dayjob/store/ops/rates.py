"""Rate limits: the rules of job names, the definitions of limits, and what operators and pools do to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from dayjob.limits import KeyRule, Limit, RateKind, Window
from dayjob.options import JobOptions
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op, texts
from dayjob.store.scripts import load

#: The prefix of a field of the hash `limits` that defines a limit. No job name has a colon.
DEFINITION = "limit:"
#: A rule: the cost, the limits, and the key with its places.
_RULE = re.compile(r"(\d+)((?: [^| ]+\|?)*)(?: \|(\S+) (\d+)( time)?)?")


class RateRule(NamedTuple):
    """The rate limits of one job name, what one of its jobs costs, and its key."""

    cost: int
    limits: tuple[str, ...]
    key: KeyRule | None = None
    #: Those of `limits` that count by key.
    by_key: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The rule as Redis stores it behind the concurrency limit of the name."""
        limits = (f"{one}|" if one in self.by_key else one for one in self.limits)
        return " ".join((str(self.cost), *limits, *([self.key.text] if self.key else ())))

    def of_key(self, key: str) -> tuple[str, ...]:
        """The limits that a job with this key is charged for."""
        return tuple(f"{one}|{key}" if one in self.by_key else one for one in self.limits)


class Charge(msgspec.Struct, frozen=True, gc=False):
    """What an attempt was charged when it was fetched: units, and the mark of each limit; "" if it is not known."""

    cost: int
    marks: Mapping[str, str]
    #: When it was fetched, in Redis seconds.
    at: float = 0.0


class Spent(msgspec.Struct, frozen=True, gc=False):
    """A correction of what an attempt was charged."""

    #: How many units more, or less, than charged.
    units: float
    marks: Mapping[str, str]
    #: Whether the attempt never started.
    undone: bool = False


@dataclass(frozen=True, slots=True)
class RateTable:
    """The rate limits in the hash `limits`."""

    rules: dict[str, RateRule]
    #: Limit to its definition in force; "lifted" if an operator lifted it.
    definitions: dict[str, str]
    #: Limit to the definition that the code declares.
    declared: dict[str, str]
    #: Limits that an operator set or lifted.
    by_operator: set[str]

    def users(self, limit: str) -> list[str]:
        """The job names that have this limit."""
        return sorted(name for name, rule in self.rules.items() if limit in rule.limits)

    def key_of(self, limit: str) -> tuple[str, ...]:
        """The arguments by which a limit counts; none if it counts all its jobs together."""
        users = (self.rules[name] for name in self.users(limit))
        return next((rule.key.by for rule in users if rule.key is not None and limit in rule.by_key), ())


def rate_table(keys: Keys) -> Op[RateTable]:
    """Every rule and every definition."""
    return Op("HGETALL", (keys.limits,), (), read_table)


def read_table(reply: Any) -> RateTable:
    words = [raw.decode("utf-8", "replace") for raw in reply]
    table = RateTable({}, {}, {}, set())
    for field, value in zip(words[::2], words[1::2], strict=True):
        if field.startswith(DEFINITION):
            limit, _, what = field.removeprefix(DEFINITION).partition("|")
            if what == "code":
                table.declared[limit] = value
            elif what == "by" and value == "operator":
                table.by_operator.add(limit)
            elif not what:
                table.definitions[limit] = value
        elif "|" not in field:
            rule = read_rule(value.partition(" ")[2])
            if rule is not None:
                table.rules[field] = rule
    return table


def read_rule(text: str) -> RateRule | None:
    """The rule that Redis stores as `text`; None if there is none."""
    found = _RULE.fullmatch(text)
    if found is None:
        return None
    words = found[2].split()[:1000]
    key = KeyRule(tuple(found[3].split(",")), int(found[4]), bool(found[5])) if found[3] else None
    if not words and key is None:
        return None
    by_key = frozenset(one[:-1] for one in words if one.endswith("|"))
    return RateRule(int(found[1]), tuple(one.removesuffix("|") for one in words), key, by_key)


def kind_of(definition: str) -> str:
    """`rate` or `window`, by which the exchange chooses the key; `rate` if the definition is not known."""
    return "window" if definition.startswith("window ") else "rate"


def state_key(keys: Keys, limit: str, kind: str) -> str:
    """The key that has what a limit counts. For a limit that counts by key: what operators set for its keys."""
    if kind == "keyed":
        return keys.overrides(limit)
    return keys.window(limit) if kind == "window" else keys.rate(limit)


@dataclass(frozen=True, slots=True)
class LimitState:
    """What a rate limit counts now."""

    #: Units of a rate, or starts of a window.
    used: int
    #: Seconds until the next job may start, and until a hold ends; 0 if it may start now, and if there is no hold.
    wait: float
    held_for: float
    #: Whether one of its keys has a wrong type.
    wrong: bool


def limit_states(
    keys: Keys, kinds: Mapping[str, str], *, cost: int | Mapping[str, int]
) -> Op[dict[str, LimitState]]:
    """The states of these limits, given with their kind, for a job of this cost, or of the cost by limit."""
    key_list: list[Arg] = [keys.limits]
    args: list[Arg] = []
    for limit, kind in kinds.items():
        key_list += (state_key(keys, limit, kind), keys.hold(limit), keys.overrides(limit.partition("|")[0]))
        args += (limit, kind, cost if isinstance(cost, int) else cost[limit])
    return Op(load("limit_states"), key_list, args, lambda reply: _read_states(reply, list(kinds)))


def _read_states(reply: Any, limits: Sequence[str]) -> dict[str, LimitState]:
    return {
        limit: LimitState(used, wait / 1000, held / 1000, bool(wrong))
        for limit, (used, wait, held, wrong) in zip(limits, reply[1:], strict=True)
    }


class HeldStart(NamedTuple):
    """The start of an attempt that a pool holds: its token, when it was fetched in Redis seconds, and its cost."""

    token: str
    at: float
    cost: int


def restore_starts(
    keys: Keys, pool_id: str, limits: Mapping[str, tuple[str, str, Sequence[HeldStart]]]
) -> Op[dict[str, str]]:
    """Count starts that a limit does not count any more, because its state was deleted.

    Each limit has its kind, the epoch that this pool restored before or "", and the starts. Returns the epochs by limit.
    """
    key_list: list[Arg] = [keys.limits]
    args: list[Arg] = [pool_id]
    for limit, (kind, restored, starts) in limits.items():
        key_list.append(state_key(keys, limit, kind))
        args += (limit, kind, restored, len(starts))
        for one in starts:
            args += (one.token, f"{one.at * 1_000_000:.0f}", one.cost)
    return Op(
        load("restore_starts"),
        key_list,
        args,
        lambda reply: dict(zip(limits, (epoch.decode() for epoch in reply), strict=True)),
    )


def rule_of(options: JobOptions) -> RateRule | None:
    """The rule that the code of a job type declares; None if it has neither rate limits nor a key."""
    if not options.limits and options.fair_by is None:
        return None
    by_key = frozenset(one.name for one in options.limits if one.by is not None)
    return RateRule(options.cost, tuple(one.name for one in options.limits), options.fair_by, by_key)


def change_rule(keys: Keys, name: str, rule: RateRule | None) -> Op[int]:
    """Set which rate limits a job name has; None for none."""
    key_list = (keys.limits, keys.held_of(name), keys.bell(name), keys.parked)
    return Op(load("change_rule"), key_list, (name, rule.text if rule else ""), int)


def declare(keys: Keys, limit: Limit) -> Op[bool]:
    """Define a limit as the code declares it. A definition that an operator set stays in force."""
    return _change(keys, limit.name, "declare", limit.kind.definition(), ())


def set_limit(keys: Keys, limit: str, kind: RateKind, users: Sequence[str]) -> Op[bool]:
    """Set a limit for all pools, for an operator; false if no code has defined it. `users` are the names that have it."""
    return _change(keys, limit, "set", kind.definition(), users)


def lift(keys: Keys, limit: str, users: Sequence[str]) -> Op[bool]:
    """Stop applying a limit, for an operator."""
    return _change(keys, limit, "lift", "", users)


def restore_declared(keys: Keys, limit: str, users: Sequence[str]) -> Op[bool]:
    """Apply the definition of the code again."""
    return _change(keys, limit, "restore", "", users)


def reset(keys: Keys, limit: str, users: Sequence[str]) -> Op[bool]:
    """Forget what was used of a limit, and end a hold."""
    return _change(keys, limit, "reset", "", users)


def hold(keys: Keys, limit: str, seconds: float, users: Sequence[str]) -> Op[bool]:
    """Let nothing start under a limit for some seconds."""
    return _change(keys, limit, "hold", max(1, round(seconds * 1000)), users)


def _change(keys: Keys, limit: str, what: str, value: Arg, users: Sequence[str]) -> Op[bool]:
    key_list = [keys.limits, keys.rate(limit), keys.window(limit), keys.hold(limit), keys.parked]
    key_list += [keys.bell(name) for name in users]
    return Op(load("change_rate"), key_list, (limit, what, value, *users), bool)


def change_key_rate(
    keys: Keys, limit: str, key: str, what: str, users: Sequence[str], *, value: Arg = ""
) -> Op[bool]:
    """Set (`value`: a definition), lift, restore, reset or hold (`value`: milliseconds) a limit for one key.

    False if no code has defined the limit.
    """
    own = f"{limit}|{key}"
    key_list: list[Arg] = [
        keys.limits,
        keys.overrides(limit),
        keys.rate(own),
        keys.window(own),
        keys.hold(own),
    ]
    for name in users:
        key_list += (
            keys.turns(name),
            keys.blocked(name),
            keys.debts(name),
            keys.partition(name, key),
            keys.bell(name),
        )
    return Op(load("change_key_rate"), key_list, (limit, key, what, value), bool)


def overrides(keys: Keys, limit: str) -> Op[dict[str, str]]:
    """What operators set for single keys of a limit: key to definition."""
    return Op(
        "HGETALL",
        (keys.overrides(limit),),
        (),
        lambda reply: dict(zip(texts(reply[::2]), texts(reply[1::2]), strict=True)),
    )


def definition_kind(limit: Limit) -> str:
    """`rate` or `window`."""
    return "window" if isinstance(limit.kind, Window) else "rate"
