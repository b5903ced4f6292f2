"""Job types as their pools announce them, for consoles. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a job type, for a form."""

    name: str
    #: As in Python: `int`, `str | None`.
    type: str
    required: bool
    #: A JSON value; None if there is none, or if it is hidden.
    default: Any
    kind: Literal["text", "integer", "number", "boolean", "choice", "json"]
    choices: tuple[str | int, ...]
    nullable: bool
    #: Whether its values are never shown.
    hidden: bool


@dataclass(frozen=True, slots=True)
class JobTypeView:
    """A job type as its pools describe it."""

    name: str
    arguments: tuple[Argument, ...]
    #: Whether it takes further arguments of any name.
    open: bool
    colour: Literal["sync", "async"]
    priority: int
    max_fails: int
    timeout: float | None
    max_concurrency: int | None
    keep: float | None
    unique_until: str
    redact: tuple[str, ...]
    #: How many records of its attempts the history keeps, and for how many seconds; None if an older release announced it.
    history_count: int | None
    history_age: float | None
    #: Whether its jobs are found by their id wherever they are.
    deep_lookup: bool
    #: The first line of its docstring.
    doc: str
    signature: str
    #: When a pool last announced it, within a day.
    announced_at: float | None
