"""The streams of jobs as operators see them: what jobs emitted, without secrets. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dayjob.admin.redactor import Redactor
from dayjob.admin.session import Session
from dayjob.store import codec
from dayjob.store.ops import streams
from dayjob.store.steps import Steps, ask
from dayjob.store.stream_reader import Emitted, StreamReader

__all__ = ["Emitted", "EmittedView", "emitted", "follow", "new_reader"]

#: How many values a view shows.
MAX_SHOWN = 200


@dataclass(frozen=True, slots=True)
class EmittedView:
    """The last values that the last attempt of a job emitted, oldest first."""

    values: tuple[Any, ...]
    attempt: int
    #: How the attempt ended: completed, failed or again; "" while it runs.
    end: str
    #: Whether earlier values are left out.
    more: bool

    @property
    def text(self) -> str:
        """The values as one text, if all are texts; else ""."""
        return "".join(self.values) if all(isinstance(one, str) for one in self.values) else ""


def emitted(session: Session, job_id: str) -> Steps[EmittedView | None]:
    """What the last attempt of a job emitted, as far as it is kept: the last 200 values. None if it emitted nothing."""
    entries = yield from ask(streams.last_entries(session.keys, job_id, MAX_SHOWN))
    first = yield from ask(streams.first_entry(session.keys, job_id))
    if not entries or first is None:
        return None
    redactor = Redactor(session)
    yield from redactor.learn([first.name])
    raws = [raw for entry in entries for raw in entry.shown]
    values = tuple(redactor.emitted(first.name, codec.json_value(raw)) for raw in raws[-MAX_SHOWN:])
    more = len(raws) > MAX_SHOWN or entries[0].id != first.id
    return EmittedView(values, entries[-1].attempt, entries[-1].end, more)


def follow(reader: StreamReader, redactor: Redactor) -> Steps[list[Emitted]]:
    """The next values of a stream that is followed. Raises JobFailed, StoreError."""
    found = yield from reader.read()
    if found:
        yield from redactor.learn([reader.name or ""])
    return [one._replace(value=redactor.emitted(reader.name or "", one.value)) for one in found]


def new_reader(session: Session, job_id: str, after: str) -> tuple[StreamReader, Redactor]:
    """A reader that shows no secrets. Raises BadOption."""
    return StreamReader(session.keys, job_id, after=after, shown=True), Redactor(session)
