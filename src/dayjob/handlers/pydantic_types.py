"""Annotations that only pydantic understands: its own types, its constraints in `Annotated`, and unions of models.

Pydantic is imported only for a handler whose annotation comes from it.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from types import UnionType
from typing import Any

#: The packages whose classes and constraints only pydantic can check.
_PACKAGES = frozenset({"pydantic", "pydantic_core", "annotated_types"})

#: Its types whose values it writes as asterisks, and what in `Annotated` writes a value in another way.
_SECRETS = frozenset({"SecretStr", "SecretBytes", "Secret"})
_SERIALIZERS = frozenset({"PlainSerializer", "WrapSerializer"})


class _AnyInstance(type):
    """Lets every object pass as an instance, because msgspec checks what a decoding hook returns."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class Adapted(metaclass=_AnyInstance):
    """Stands for such an annotation in msgspec's types. It reads and writes values with pydantic's TypeAdapter."""

    adapter: Any
    #: The annotation.
    annotation: Any

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
        annotation = hint

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


def secret_in(hint: Any) -> Any:
    """The secret of pydantic in an annotation or model, which is written as asterisks. None if there is none.

    A field that the program writes itself, by a serializer of its own, is left out.
    """
    return _secret_in(hint, set())


def _secret_in(hint: Any, seen: set[Any]) -> Any:
    kind = typing.get_origin(hint) or hint
    if isinstance(kind, type):
        if _package(kind) == "pydantic" and kind.__name__ in _SECRETS:
            return kind
        if issubclass(kind, Adapted):
            return _secret_in(kind.annotation, seen)
        if _is_model(kind):
            return _secret_of_model(kind, seen)
    if any(type(one).__name__ in _SERIALIZERS for one in getattr(hint, "__metadata__", ())):
        return None
    return _first(_secret_in(one, seen) for one in typing.get_args(hint))


def _secret_of_model(model: Any, seen: set[Any]) -> Any:
    decorators = getattr(model, "__pydantic_decorators__", None)
    if model in seen or decorators is None or decorators.model_serializers:
        return None
    seen.add(model)
    written = {name for one in decorators.field_serializers.values() for name in one.info.fields}
    return _first(
        _secret_in(field.annotation, seen)
        for name, field in model.model_fields.items()
        if not {name, "*"} & written
        and not field.exclude
        and not any(type(one).__name__ in _SERIALIZERS for one in field.metadata)
    )


def _first(found: Iterable[Any]) -> Any:
    return next((one for one in found if one is not None), None)
