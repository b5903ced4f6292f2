"""Results: encodes what a handler returns, and decodes it to the type of the handler's return annotation."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NoReturn

import msgspec
from msgspec import inspect as types

from dayjob.errors import BadSignature, DayjobError
from dayjob.handlers.altered import altered, may_alter
from dayjob.handlers.codecs import Codecs
from dayjob.handlers.coerce import parts
from dayjob.handlers.pydantic_types import Adapted, adapted, secret_in
from dayjob.handlers.signature import NOT_YET, Function, show

#: Return annotations without a value that could be converted.
_UNTYPED = (Any, None, type(None), NoReturn, object)


class Results:
    """The results of one job type. Without a return annotation they are plain JSON values."""

    def __init__(self, function: Function, codecs: Codecs) -> None:
        self._function = function
        self._codecs = codecs
        self._read = False
        self._hint: Any = Any
        #: Set if pydantic reads and writes the result.
        self._adapted: type[Adapted] | None = None
        self._may_alter = False

    def check(self) -> None:
        """Raise BadSignature if a result of the return annotation cannot be kept. Types that do not exist yet are left out."""
        with suppress(*NOT_YET):
            self._resolve()

    def encode(self, value: Any) -> bytes:
        """Encode what the handler returned. Raises TypeError, ValueError or RecursionError if JSON cannot represent it."""
        self.check()
        plain = self._adapted.dump(value) if self._adapted is not None else value
        raw = self._codecs.encode({"result": plain})
        if b"null" in raw and (number := self._codecs.not_finite(plain)) is not None:
            raise ValueError(f"it has {number}, which JSON cannot carry")
        if self._may_alter and value is not None and (problem := self._altered(value, raw)):
            raise ValueError(problem)
        return raw

    def _altered(self, value: Any, raw: bytes) -> str | None:
        """What would change in the result, in words. None if nothing would, or if it does not fit its annotation.

        The work is done, so a result that does not fit is stored; the caller that asks for it gets an error.
        """
        try:
            arrived = self._converted(msgspec.json.decode(raw)["result"])
        except (msgspec.ValidationError, ValueError, TypeError):
            return None
        return altered(value, arrived)

    def decode(self, value: Any) -> Any:
        """The result as the handler returned it, from plain JSON values. Raises DayjobError if it does not fit the annotation."""
        try:
            self._resolve()
        except NOT_YET as error:
            raise self._function.bad(f"its return type does not exist: {error}") from None
        try:
            # A job that a middleware skipped has no result.
            return None if value is None else self._converted(value)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            wanted = show(self._function.return_annotation)
            raise DayjobError(
                f"{self._function.name}: the stored result does not fit {wanted}: {error}.\n"
                "    Was it stored by another version of the program? pool.enqueuer.result(job) returns it as plain JSON."
            ) from None

    def _converted(self, value: Any) -> Any:
        if self._adapted is not None:
            return self._adapted.model_validate(value)
        return value if self._hint is Any else self._codecs.convert(value, self._hint)

    def _resolve(self) -> None:
        """Read the return annotation, once. Raises BadSignature, and NameError while a name in it does not exist."""
        if self._read:
            return
        hint = self._function.return_hint()
        if hint not in _UNTYPED:
            self._adapted = adapted(hint)
            info = self._type_info(self._adapted or hint)
            self._hint, self._may_alter = hint, may_alter(info)
        self._read = True

    def _type_info(self, hint: Any) -> types.Type:
        try:
            info = types.type_info(hint)
        except NOT_YET:
            raise
        except Exception as error:
            # Types are the user's code and may raise anything.
            raise self._unkept(str(error)) from None
        for part in parts(info):
            if not isinstance(part, types.CustomType):
                continue
            if not self._codecs.can_load(part.cls):
                kind = show(part.cls)
                raise self._unkept(
                    f"{kind} cannot travel as JSON; make it a dataclass, or give WorkerPool a codec for it"
                )
            if (secret := secret_in(part.cls)) is not None:
                raise self._unkept(
                    f"pydantic writes a {show(secret)} as asterisks; return the plain value or an id to look it up by, "
                    "or give the field a serializer"
                )
        return info

    def _unkept(self, problem: str) -> BadSignature:
        wanted = show(self._function.return_annotation)
        return self._function.bad(f"keep=... stores what it returns, but {wanted} cannot be kept: {problem}")
