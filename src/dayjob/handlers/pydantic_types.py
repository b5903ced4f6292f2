"""Annotations that only pydantic understands: its own types, its constraints in `Annotated`, and unions of models.

Pydantic is imported only for a handler whose annotation comes from it.
"""

from __future__ import annotations

import typing
from types import UnionType
from typing import Any

#: The packages whose classes and constraints only pydantic can check.
_PACKAGES = frozenset({"pydantic", "pydantic_core", "annotated_types"})


class _AnyInstance(type):
    """Lets every object pass as an instance, because msgspec checks what a decoding hook returns."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class Adapted(metaclass=_AnyInstance):
    """Stands for such an annotation in msgspec's types. It reads and writes values with pydantic's TypeAdapter."""

    adapter: Any

    @classmethod
    def model_validate(cls, value: Any) -> Any:
        """A value of the annotation from plain JSON values. Raises ValueError."""
        import pydantic_core  # noqa: PLC0415 - the program uses pydantic, see adapted()

        return cls.adapter.validate_json(pydantic_core.to_json(value))

    @classmethod
    def dump(cls, value: Any) -> Any:
        """Plain JSON values for a value of the annotation."""
        return cls.adapter.dump_python(value, mode="json", by_alias=True, round_trip=True, warnings=False)


def adapted(hint: Any) -> type[Adapted] | None:
    """A class that stands for `hint` and reads it with pydantic; None if msgspec reads it as well."""
    if not _needs_pydantic(hint):
        return None
    from pydantic import TypeAdapter  # noqa: PLC0415 - only for programs that use pydantic

    class ForHint(Adapted):
        adapter = TypeAdapter(hint)

    return ForHint


def _needs_pydantic(hint: Any) -> bool:
    if any(_package(type(one)) in _PACKAGES for one in getattr(hint, "__metadata__", ())):
        return True
    if isinstance(hint, type) and _package(hint) in _PACKAGES:
        return True
    kinds = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, UnionType) and sum(map(_is_model, kinds)) > 1:
        return True
    return any(_needs_pydantic(kind) for kind in kinds)


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate")
