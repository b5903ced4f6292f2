"""Job types as the pools of the fleet announce them: for forms, and for checks without the program. Reads only."""

from __future__ import annotations

from dayjob.admin.session import Desk
from dayjob.admin.views import Argument, JobTypeView
from dayjob.store.ops import job_types
from dayjob.store.ops.job_types import Known
from dayjob.store.steps import Steps, ask


def every(desk: Desk) -> Steps[tuple[JobTypeView, ...]]:
    """The job types that pools announced, by name; those of pools that are gone are kept as long as dead jobs are."""
    found = yield from job_types.every(desk.keys)
    return tuple(_view(desk, one) for one in found)


def one(desk: Desk, name: str) -> Steps[JobTypeView | None]:
    """What pools say of one job type; None when none does."""
    found = (yield from ask(job_types.some(desk.keys, [name])))[0]
    return None if found is None else _view(desk, found)


def _view(desk: Desk, known: Known) -> JobTypeView:
    said = known.said
    arguments = tuple(
        Argument(
            one.name, one.type, one.required, None if one.name in desk.hide else one.default, one.kind, one.choices,
            one.nullable, one.hidden or one.name in desk.hide,
        )
        for one in said.arguments
    )  # fmt: skip
    return JobTypeView(
        said.name, arguments, said.open, said.colour, said.priority, said.max_fails, said.timeout, said.max_concurrency,
        said.keep, said.unique_until, said.redact, said.doc, said.signature, known.at,
    )  # fmt: skip
