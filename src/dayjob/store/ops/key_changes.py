"""Changes of limits by key that take several steps.

A limit of a key comes into force when all attempts of the key that pools hold are counted. A change of a rate limit that counts
by key makes pools try the keys again that waited under the old one.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict

from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops import maintain, membership, partitions, rates
from dayjob.store.ops.consume import key_in, name_in
from dayjob.store.ops.partitions import COUNTING, KEYS_AT_ONCE, KeyChange
from dayjob.store.ops.rates import RateRule
from dayjob.store.steps import Steps, ask, ask_all


def put_rule(keys: Keys, name: str, rule: RateRule | None) -> Steps[None]:
    """Set the rule of a job name. A limit for each key comes into force in the last step."""
    places = _places(rule)
    before = _places((yield from ask(rates.rate_table(keys))).rules.get(name))
    if rule is not None and rule.key is not None and places and before in (0, COUNTING):
        counting = rule._replace(key=dataclasses.replace(rule.key, places=COUNTING))
        yield from ask(rates.change_rule(keys, name, counting))
        yield from count_held(keys, name)
    yield from ask(rates.change_rule(keys, name, rule))
    if before and not places:
        yield from _forget_counts(keys, name)
    if rule is not None and rule.key is not None:
        # The keys that wait for a limit which the name had before.
        yield from try_blocked(keys, name)


def _places(rule: RateRule | None) -> int:
    return 0 if rule is None or rule.key is None else rule.key.places


def change_key(keys: Keys, name: str, key: str, change: KeyChange) -> Steps[bool]:
    """Change what is given for one key of a name. Returns whether something changed. Raises BadOption.

    A limit comes into force in the last step.
    """
    final = partitions.set_key(keys, name, key, change)
    counted, clears = True, "limit" in change.clear
    if change.limit is not None or clears:
        counted = _places((yield from ask(rates.rate_table(keys))).rules.get(name)) > 0
    if change.limit is not None and not counted:
        settings = yield from ask(Op("HGET", (keys.key_settings(name),), (key,), partitions.read_settings))
        if settings[1] in (None, COUNTING):
            yield from ask(partitions.set_key(keys, name, key, KeyChange(limit=COUNTING)))
            yield from count_held(keys, name, only=key)
    changed: bool = yield from ask(final)
    if clears and not counted:
        yield from ask(Op("DEL", (keys.held_of(partitions.place(name, key)),), (), int))
    return changed


def try_blocked(keys: Keys, name: str, *, ends_hold_of: str = "") -> Steps[None]:
    """Let the next exchanges try all keys again that wait for a time, because a limit of theirs changed.

    With `ends_hold_of`, holds of these keys under that limit end.
    """
    blocked, first = keys.blocked(name), 0
    while True:
        some: list[str] = yield from ask(partitions.key_page(blocked, first))
        if some:
            holds = [keys.hold(f"{ends_hold_of}|{key}") for key in some] if ends_hold_of else []
            if holds:
                yield from ask(Op("DEL", holds, (), int))
            # A key that was blocked for a place is blocked again by the exchange that tries it.
            scores = [word for key in some for word in ("0", key)]
            yield from ask(Op("ZADD", (blocked,), ("XX", *scores), int))
        if len(some) < KEYS_AT_ONCE:
            break
        first += len(some)
    if first or some:
        yield from ask(Op("ZREM", (keys.parked,), (name,), int))
        yield from ask(Op("ZADD", (keys.bell(name),), (0, "1"), int))


def held_by_key(keys: Keys, name: str) -> Steps[dict[str, list[str]]]:
    """The attempts of a name that pools hold, by key, as members of held sets."""
    holders = yield from ask_all([membership.pool_ids(keys), membership.condemned_ids(keys)])
    found: dict[str, list[str]] = defaultdict(list)
    for pool_id in holders[0] + holders[1]:
        for token in (yield from ask(membership.held_tokens(keys, pool_id))):
            key = key_in(token)
            if key is not None and name_in(token) == name:
                found[key].append(f"{pool_id}/{token}")
    return found


def count_held(keys: Keys, name: str, *, only: str | None = None) -> Steps[None]:
    """Count what pools hold for each key of a name, or for one of them."""
    held: dict[str, list[str]] = yield from held_by_key(keys, name)
    for key, members in held.items():
        if only in (None, key):
            for first in range(0, len(members), KEYS_AT_ONCE):
                some = members[first : first + KEYS_AT_ONCE]
                yield from ask(maintain.recount(keys, partitions.place(name, key), some))


def _forget_counts(keys: Keys, name: str) -> Steps[None]:
    """Delete the counts of a name whose keys have no limit any more, but those of keys whose own limit an operator set."""
    held: dict[str, list[str]] = yield from held_by_key(keys, name)
    for key in held:
        settings = yield from ask(Op("HGET", (keys.key_settings(name),), (key,), partitions.read_settings))
        if settings[1] is None:
            yield from ask(Op("DEL", (keys.held_of(partitions.place(name, key)),), (), int))
