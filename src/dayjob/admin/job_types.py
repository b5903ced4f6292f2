"""Job types as pools announced them, for forms and for checks of arguments. Reads only."""

from __future__ import annotations

from dayjob.admin import sorting
from dayjob.admin.session import Session
from dayjob.admin.views import Argument, JobTypeView
from dayjob.store.ops import job_types
from dayjob.store.ops.job_types import AnnouncedType
from dayjob.store.steps import Steps, ask


def every(session: Session, *, sort: str = "") -> Steps[tuple[JobTypeView, ...]]:
    """The job types that pools announced, by name. They are kept as long as dead jobs, also if no pool is left.

    Or sorted by another column: `-timeout`. Raises BadOption.
    """
    sorting.JOB_TYPES.read(sort)
    found = yield from job_types.every(session.keys)
    return tuple(sorting.JOB_TYPES.sorted((_view(session, one) for one in found), sort))


def one(session: Session, name: str) -> Steps[JobTypeView | None]:
    """One job type as its pools announced it; None if none announced it."""
    found = (yield from ask(job_types.some(session.keys, [name])))[0]
    return None if found is None else _view(session, found)


def _view(session: Session, known: AnnouncedType) -> JobTypeView:
    described = known.described
    arguments = tuple(
        Argument(
            one.name, one.type, one.required, None if one.name in session.hide else one.default, one.kind, one.choices,
            one.nullable, one.hidden or one.name in session.hide,
        )
        for one in described.arguments
    )  # fmt: skip
    fields = {name: getattr(described, name) for name in described.__struct_fields__}
    return JobTypeView(**{**fields, "arguments": arguments}, announced_at=known.at)
