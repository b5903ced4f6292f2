"""Rate limits: what each allows and uses, how many jobs wait for it, and the actions on one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dayjob.admin import sorting
from dayjob.admin.session import Session, outcome
from dayjob.admin.views import Outcome
from dayjob.admin.views.limits import KeyLimit, LimitView
from dayjob.errors import BadOption
from dayjob.handlers.job_keys import stored_key
from dayjob.limits import MAX_PER_SECONDS, Rate, RateKind, Window, allows, read_definition
from dayjob.names import suggest
from dayjob.store.keys import Keys
from dayjob.store.ops import inspect, key_changes, partitions, rates
from dayjob.store.ops.rates import LimitState, RateTable
from dayjob.store.steps import Steps, ask, ask_all
from dayjob.text import span

#: How many queues or limits one read covers.
AT_ONCE = 200


def listing(
    session: Session, *, sort: str = "", sizes: Mapping[str, int] | None = None
) -> Steps[tuple[LimitView, ...]]:
    """Every rate limit by name, or sorted by a column, its use, and how many jobs wait for it. Raises BadOption.

    `sizes` are those of the queues, if they are known.
    """
    sorting.LIMITS.read(sort)
    table = yield from ask(rates.rate_table(session.keys))
    views = yield from _views(session.keys, table, sorted(table.definitions), sizes)
    return tuple(sorting.LIMITS.sorted(views, sort))


def of_queue(session: Session, name: str) -> Steps[tuple[tuple[LimitView, ...], str]]:
    """The rate limits of a job name, and how many of its jobs each key may run at once, in words; "" if that is not limited."""
    table = yield from ask(rates.rate_table(session.keys))
    rule = table.rules.get(name)
    if rule is None:
        return (), ""
    views = yield from _views(
        session.keys, table, [one for one in rule.limits if one in table.definitions], None
    )
    places = rule.key is not None and rule.key.places
    return tuple(views), f"{places:,} for each {' and '.join(rule.key.by)}" if rule.key and places else ""


def _views(
    keys: Keys, table: RateTable, names: Sequence[str], sizes: Mapping[str, int] | None
) -> Steps[list[LimitView]]:
    """These rate limits, with how much of each is used and how many jobs wait for it."""
    if not names:
        return []
    if sizes is None:
        sizes = yield from _sizes(keys, sorted({queue for name in names for queue in table.users(name)}))
    states: dict[str, LimitState] = {}
    for first in range(0, len(names), AT_ONCE):
        some = names[first : first + AT_ONCE]
        kinds = {name: rates.kind_of(table.definitions[name]) for name in some}
        costs = {name: min((table.rules[one].cost for one in table.users(name)), default=1) for name in some}
        states |= yield from ask(rates.limit_states(keys, kinds, cost=costs))
    views = [_view(table, name, states[name], sizes) for name in names]
    for at, view in enumerate(views):
        if view.by:
            views[at] = yield from _with_keys(keys, view)
    return views


def _with_keys(keys: Keys, view: LimitView) -> Steps[LimitView]:
    """The view of a limit that counts by key, with what only its keys know."""
    found = yield from ask(rates.overrides(keys, view.name))
    own = tuple(KeyLimit(key, allows(read_definition(text))) for key, text in sorted(found.items())[:AT_ONCE])
    held: list[int] = yield from ask_all([partitions.count_blocked(keys, name) for name in view.queues])
    return replace(view, own_keys=own, keys_held_back=sum(held), used=0, most=None, wait=0.0, delay=0.0)


def _sizes(keys: Keys, queues: Sequence[str]) -> Steps[dict[str, int]]:
    sizes: dict[str, int] = {}
    for first in range(0, len(queues), AT_ONCE):
        look = yield from inspect.overview(keys, queues[first : first + AT_ONCE])
        sizes |= {one.name: one.size for one in look.queues}
    return sizes


def _view(table: RateTable, name: str, state: LimitState, sizes: Mapping[str, int]) -> LimitView:
    found = read_definition(table.definitions[name])
    declared = read_definition(table.declared.get(name, ""))
    most = None if found is None else found.units if isinstance(found, Rate) else found.n
    users = table.users(name)
    waiting = {one: max(0, sizes.get(one, 0)) for one in users}
    units = sum(number * table.rules[one].cost for one, number in waiting.items())
    return LimitView(
        name, rates.kind_of(table.declared.get(name, "")), allows(found), state.used, most, state.wait, state.held_for,
        sum(waiting.values()), _delay(found, state, sum(waiting.values()), units), tuple(users), allows(declared),
        name in table.by_operator, state.wrong, table.key_of(name),
    )  # fmt: skip


def _delay(kind: RateKind | None, state: LimitState, jobs: int, units: int) -> float:
    """About how long a job enqueued now waits for a limit, behind `jobs` that take `units` of it."""
    if kind is None:
        return state.held_for
    each = kind.seconds / kind.n
    if isinstance(kind, Window):
        return state.wait + max(0, jobs - max(0, kind.n - state.used)) * each
    return max(state.wait, state.held_for + (state.used + units + 1 - kind.units) * each)


def one(session: Session, name: str) -> Steps[LimitView]:
    """One rate limit. Raises BadOption if there is none of this name."""
    views = yield from listing(session)
    found = next((view for view in views if view.name == name), None)
    if found is None:
        raise _unknown(name, [view.name for view in views])
    return found


def _unknown(name: str, known: list[str]) -> BadOption:
    near = suggest(name, known) or (
        ". `dayjob limits ls` shows all." if known else ". No pool has declared one."
    )
    return BadOption(f"no rate limit {name!r}{near}")


# Actions.


def set_rate(
    session: Session,
    name: str,
    n: int,
    *,
    per: float | None = None,
    burst: int | None = None,
    key: str | None = None,
) -> Steps[Outcome]:
    """Set a rate limit for all pools, until it is handed back to the code; with `key` for one key. Raises BadOption.

    `per` is that of the definition in force unless given, and `burst` is `n`.
    """
    table = yield from _table(session, name, key)
    before = read_definition(table.definitions[name]) or read_definition(table.declared[name])
    if before is None:
        raise BadOption(
            f"the definition of the limit {name!r} cannot be read: `dayjob limits set {name} code`"
        )
    seconds = before.seconds if per is None else per
    if isinstance(before, Window):
        if burst is not None:
            raise BadOption(f"limit {name!r} is a window, which has no burst")
        kind: RateKind = Window(n, seconds)
    else:
        kind = Rate(n, seconds, burst)
        dear = max((table.rules[user].cost for user in table.users(name)), default=1)
        if kind.units < dear:
            raise BadOption(f"limit {name!r}: a job of it costs {dear:,}, so its burst must be at least that")
    if key is None:
        yield from ask(rates.set_limit(session.keys, name, kind, table.users(name)))
        yield from _try_keys(session, table, name)
    else:
        yield from _change_key(session, table, name, key, "set", kind.definition())
    words = f"{allows(kind)[:1].upper()}{allows(kind)[1:]}."
    return (yield from _done(session, "set limit", name, key, words))


def lift(session: Session, name: str, *, key: str | None = None) -> Steps[Outcome]:
    """Stop applying a rate limit until it is set or restored; with `key`, only to that key. Raises BadOption."""
    table = yield from _table(session, name, key)
    if key is None:
        yield from ask(rates.lift(session.keys, name, table.users(name)))
        yield from _try_keys(session, table, name)
    else:
        yield from _change_key(session, table, name, key, "lift")
    return (
        yield from _done(session, "lift limit", name, key, "Lifted: it limits nothing until it is set again.")
    )


def restore(session: Session, name: str, *, key: str | None = None) -> Steps[Outcome]:
    """Apply a rate limit as the code defines it; with `key`, apply to it what applies to all keys. Raises BadOption."""
    table = yield from _table(session, name, key)
    if key is None:
        yield from ask(rates.restore_declared(session.keys, name, table.users(name)))
        yield from _try_keys(session, table, name)
        words = f"As the code declares it: {allows(read_definition(table.declared[name]))}."
    else:
        yield from _change_key(session, table, name, key, "restore")
        words = f"As for all keys: {allows(read_definition(table.definitions[name]))}."
    return (yield from _done(session, "restore limit", name, key, words))


def reset(session: Session, name: str, *, key: str | None = None) -> Steps[Outcome]:
    """Forget what a limit has counted, and end a hold: its full burst may start at once. Raises BadOption."""
    table = yield from _table(session, name, key)
    if key is None:
        yield from ask(rates.reset(session.keys, name, table.users(name)))
        yield from _try_keys(session, table, name, ends_holds=True)
    else:
        yield from _change_key(session, table, name, key, "reset")
    return (yield from _done(session, "reset limit", name, key, "Reset: nothing is used, and no hold."))


def hold(session: Session, name: str, seconds: float, *, key: str | None = None) -> Steps[Outcome]:
    """Start no jobs under a rate limit for `seconds`; with `key`, no jobs of that key. Raises BadOption."""
    if not 0.001 <= seconds <= MAX_PER_SECONDS:
        raise BadOption(f"hold {seconds!r}: give seconds from 0.001 to a year")
    table = yield from _table(session, name, key)
    if key is None:
        yield from ask(rates.hold(session.keys, name, seconds, table.users(name)))
    else:
        yield from _change_key(session, table, name, key, "hold", max(1, round(seconds * 1000)))
    return (yield from _done(session, "hold limit", name, key, f"Held for {span(seconds)}."))


def _try_keys(session: Session, table: RateTable, name: str, *, ends_holds: bool = False) -> Steps[None]:
    """Try the keys again that waited under a limit before it changed, if it counts by key."""
    if table.key_of(name):
        for user in table.users(name):
            yield from key_changes.try_blocked(session.keys, user, ends_hold_of=name if ends_holds else "")


def _change_key(
    session: Session, table: RateTable, name: str, key: str, what: str, value: str | int = ""
) -> Steps[bool]:
    users = table.users(name)
    return (
        yield from ask(rates.change_key_rate(session.keys, name, stored_key(key), what, users, value=value))
    )


def _table(session: Session, name: str, key: str | None = None) -> Steps[RateTable]:
    """All limits. Raises BadOption if there is none of this name, and for a key of a limit without keys."""
    table = yield from ask(rates.rate_table(session.keys))
    if name not in table.definitions or name not in table.declared:
        raise _unknown(name, sorted(table.definitions))
    if key is not None and not table.key_of(name):
        raise BadOption(f"limit {name!r} counts all its jobs together: it has no keys")
    return table


def _done(session: Session, action: str, name: str, key: str | None, message: str) -> Steps[Outcome]:
    subject = f"limit {name}" + ("" if key is None else f" (key {stored_key(key)})")
    return (yield from outcome(session, action, subject, "done", message))
