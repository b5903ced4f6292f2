"""Finding: the result of one check of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingLevel = Literal["ok", "warning", "error", "could not check"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    level: FindingLevel
    topic: str
    #: The result of the check, and what to do about it; one line each.
    what: str
    todo: str = ""


def ok(topic: str, what: str) -> Finding:
    """A check that found no problem."""
    return Finding("ok", topic, what)


def warning(topic: str, what: str, todo: str) -> Finding:
    """A check that found something to watch."""
    return Finding("warning", topic, what, todo)


def error(topic: str, what: str, todo: str) -> Finding:
    """A check that found something that loses, stops or strands jobs, or will."""
    return Finding("error", topic, what, todo)


def unsure(topic: str, what: str, todo: str) -> Finding:
    """A check that could not be made."""
    return Finding("could not check", topic, what, todo)
