"""Matcher: decides for one operator which stored jobs a filter means. It reads what the filter needs to know of pools and job types.

What is redacted cannot be compared: a filter by a redacted argument is refused before any job is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from dayjob.admin.filter_checks import JobFacts
from dayjob.admin.filters import Filter, age_of, filter_of
from dayjob.admin.redactor import Redactor
from dayjob.admin.session import Session
from dayjob.admin.views import State
from dayjob.errors import BadOption, Rejected
from dayjob.handlers.redact import is_hidden
from dayjob.store import codec
from dayjob.store.ops import job_types, pools
from dayjob.store.ops.inspect import StoredEntry
from dayjob.store.steps import Steps


class Matcher:
    """A filter for the jobs of one state. `open` it first."""

    def __init__(
        self, session: Session, state: State, where: Filter | str | None, *, counts: bool = False
    ) -> None:
        self.session = session
        self.state = state
        self.wanted = filter_of(where)
        self.redactor = Redactor(session)
        #: Whether what matches is only counted.
        self.counts = counts
        #: How many jobs could not be compared, because their arguments are hidden.
        self.hidden = 0
        self._pools: dict[str, tuple[tuple[str, ...], str]] = {}

    @property
    def empty(self) -> bool:
        """Whether everything matches."""
        return self.wanted.empty

    def open(self) -> Steps[None]:
        """Read what the filter needs. Raises BadOption for a filter that this state or a redacted argument does not allow."""
        self.wanted.check(self.state)
        if self.wanted.paths:
            yield from self._refuse_redacted()
        if self.wanted.reads_pools and self.state == "running":
            for pool in (yield from pools.pools(self.session.keys)):
                found = pool.status
                names = () if found is None else (found.host, f"{found.host}/{found.pid}")
                self._pools[pool.id] = ((pool.id, *names), "" if found is None else found.tag)

    def _refuse_redacted(self) -> Steps[None]:
        try:
            known = yield from job_types.every(self.session.keys)
        except Rejected:
            raise BadOption(
                "jobs cannot be filtered by arguments: the job types cannot be read, so it is not known what is redacted"
            ) from None
        for path in self.wanted.paths:
            if any(is_hidden(step, self.session.hide) for step in path):
                raise BadOption(f"args.{'.'.join(path)} is redacted: jobs cannot be filtered by it")
            for one in known:
                if self.wanted.fits_name(one.described.name) and any(
                    is_hidden(step, one.described.redact) for step in path
                ):
                    raise BadOption(
                        f'args.{".".join(path)} is redacted in "{one.described.name}": jobs cannot be filtered by it\n'
                        f"    Leave that job out: add not name={one.described.name}"
                    )

    def learn(self, entries: Iterable[StoredEntry]) -> Steps[None]:
        """Look up what the job types of these entries hide, for what is shown or compared."""
        if self.counts and not self.wanted.reads_shown:
            return
        yield from self.redactor.learn(entry.job.name for entry in entries if entry.job is not None)

    def fits(self, entry: StoredEntry, now: float, pool_id: str = "") -> bool:
        """Whether an entry matches. What cannot be read matches only where nothing is asked."""
        if self.wanted.empty:
            return True
        if entry.job is None:
            return False
        found = self.wanted.matches(self._facts(entry, entry.job, now, pool_id))
        self.hidden += found is None
        return found is True

    def _facts(self, entry: StoredEntry, wire: codec.Wire, now: float, pool_id: str) -> JobFacts:
        names, tag = self._pools.get(pool_id, ((pool_id,), ""))
        if not pool_id and self.wanted.reads_pools:
            names = tuple(one.died_in for one in codec.past(wire) if one.died_in)
        return JobFacts(
            wire, entry.at, age_of(self.state, wire, entry.at, now), now, len(entry.member),
            partial(self.redactor.error, wire), partial(self.redactor.args, wire.name, wire.args),
            partial(self.redactor.argument, wire.name, wire.args), names, tag,
        )  # fmt: skip
