"""Redactor: hides values of a job, by key pattern, by the console's `hide` and by the `redact` option of its job type.

The hidden values are removed from errors, tracebacks and results, too. If job types cannot be read, all is hidden.
Arguments of a name that no pool has announced are hidden as well, since its `redact` option is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from dayjob.admin.filter_checks import MISSING, Hidden
from dayjob.admin.session import Session
from dayjob.errors import Rejected
from dayjob.handlers.redact import (
    HIDDEN,
    UNANNOUNCED,
    hidden_keys,
    is_hidden,
    secrets_in,
    shown,
    texts_in,
    without,
)
from dayjob.store import codec
from dayjob.store.ops import job_types
from dayjob.store.steps import Steps, ask

#: Arguments that do not match this have no key that a pattern hides, so they need not be parsed.
_PERHAPS = re.compile(
    rb"pass|secret|token|key|credential|auth|cookie|sess|csrf|xsrf|ssn|iban|cvv|cvc|card|\\u", re.IGNORECASE
)


#: Arguments of a job that has none: there is nothing to hide.
_NO_ARGUMENTS = (b"{}", b"null", b"[]")


class Redactor:
    """Hides values for one operator. Call `learn` with the job names first."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._hide: dict[str, frozenset[str]] = {}
        #: Whether job types cannot be read, so that their `redact` options are not known.
        self._blind = False
        #: Names that no pool has announced.
        self._unannounced: set[str] = set()

    def learn(self, names: Iterable[str]) -> Steps[None]:
        """Read the `redact` options of these job types, unless they are known."""
        new = sorted({name for name in names if name not in self._hide})
        for first in range(0, len(new), job_types.AT_ONCE):
            batch = new[first : first + job_types.AT_ONCE]
            try:
                found = yield from ask(job_types.some(self._session.keys, batch))
            except Rejected:
                self._blind = True
                return
            for name, known in zip(batch, found, strict=True):
                own = () if known is None else known.described.redact
                if known is None and not self._session.show_unannounced:
                    self._unannounced.add(name)
                self._hide[name] = self._session.hide.union(own)

    def hide(self, name: str) -> frozenset[str]:
        """The argument names that are hidden for a job name, beside those that look like secrets."""
        return self._hide.get(name, self._session.hide)

    def args(self, name: str, raw: Any) -> Any:
        """The redacted arguments; `raw` is JSON. None if they cannot be read."""
        if self._blind:
            return HIDDEN
        if name in self._unannounced:
            return UNANNOUNCED if raw and bytes(raw) not in _NO_ARGUMENTS else {}
        try:
            return shown(codec.json_value(raw), self.hide(name))
        except codec.UNREADABLE:
            return None

    def headers(self, wire: codec.Wire) -> dict[str, str]:
        """The headers of a job as they may be shown."""
        if self._blind or not (found := codec.job_of(wire).headers):
            return {}
        return dict(shown(dict(found), self.hide(wire.name)))

    def argument(self, name: str, raw: Any, path: Sequence[str]) -> Any:
        """The value at a path of the arguments; MISSING if there is none, Hidden if it may not be compared."""
        if self._blind or name in self._unannounced:
            return Hidden
        data, last = bytes(raw), path[-1]
        if last.isascii() and last.encode() not in data and b"\\u" not in data:
            return MISSING
        try:
            value = codec.json_value(data)
        except codec.UNREADABLE:
            return MISSING
        for step in path:
            if isinstance(value, dict) and is_hidden(step, self.hide(name)):
                return Hidden
            if isinstance(value, dict):
                value = value.get(step, MISSING)
            elif isinstance(value, list) and step.isdecimal() and len(step) < 7:
                value = value[int(step)] if int(step) < len(value) else MISSING
            else:
                return MISSING
        return value

    def plain(self, name: str, value: Any) -> Any:
        """The redacted arguments of a running job, which its pool has already redacted by its own options."""
        return HIDDEN if self._blind and value is not None else shown(value, self.hide(name))

    def secrets(self, wire: codec.Wire) -> list[str]:
        """The texts of a job that must not be shown."""
        raw, hide = bytes(wire.args), self.hide(wire.name)
        if wire.name in self._unannounced:
            try:
                return texts_in(codec.json_value(raw))
            except codec.UNREADABLE:
                return []
        if not _PERHAPS.search(raw) and not any(name.encode() in raw for name in hide):
            return []
        try:
            return secrets_in(codec.json_value(raw), hide)
        except codec.UNREADABLE:
            return []

    def text(self, text: str, secrets: list[str]) -> str:
        """A redacted text of a job."""
        return HIDDEN if self._blind and text else without(text, secrets)

    def error(self, wire: codec.Wire) -> str:
        """The redacted error of a job."""
        return self.text(wire.err, self.secrets(wire)) if wire.err else ""

    def emitted(self, name: str, value: Any) -> Any:
        """A redacted value that a job emitted. Its pool has removed what its job type redacts."""
        if name in self._unannounced:
            return UNANNOUNCED
        return HIDDEN if self._blind else hidden_keys(value, self.hide(name))

    def result(self, name: str, value: Any, secrets: list[str]) -> Any:
        """A redacted result."""
        if name in self._unannounced and value is not None:
            return UNANNOUNCED
        return HIDDEN if self._blind and value is not None else shown(value, self.hide(name), secrets=secrets)
