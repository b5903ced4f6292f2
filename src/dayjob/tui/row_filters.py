"""Filters for lists that the admin layer does not filter: the same syntax, applied to the rows. Pure."""

from __future__ import annotations

from dayjob.admin.filter_checks import compare_texts
from dayjob.admin.filters import KEYS, Filter, filter_of
from dayjob.admin.views import State
from dayjob.errors import BadOption


def checked(where: str, allowed: tuple[str, ...]) -> Filter:
    """Parse a filter. Raises BadOption, also for a condition that this view cannot apply."""
    wanted = filter_of(where)
    useless = [one.key for one in wanted.conditions if one.base not in (*allowed, "text")]
    if useless:
        known = " or ".join(KEYS[key].example for key in allowed)
        raise BadOption(f"{', '.join(useless)} is not a filter of this tab: write {known}")
    return wanted


def keys_of(state: State) -> tuple[str, ...]:
    """What jobs in a state can be filtered by."""
    return tuple(key for key, one in KEYS.items() if not one.states or state in one.states)


def all_hold(wanted: Filter, texts: dict[str, str]) -> bool:
    """Whether a row that is no job fits; a plain word may be in any of its texts."""
    words = tuple(text.casefold() for text in texts.values())
    return all(
        (
            any(one.value.casefold() in word for word in words)
            if one.key == "text"
            else compare_texts(one, (texts[one.key],))
        )
        != one.negated
        for one in wanted.conditions
    )
