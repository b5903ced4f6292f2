"""Finds arguments that JSON would silently change on their way to the handler.

JSON has no bytes and only string keys, and a pydantic model may write JSON that it cannot read back.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from msgspec import inspect as types

from dayjob.handlers.coerce import parts

_WATCHED = (types.AnyType, types.CustomType, types.StructType, types.DataclassType, types.TypedDictType)


def may_alter(info: types.Type) -> bool:
    """Whether a value of this type may change on its way through JSON."""
    return any(isinstance(part, _WATCHED) for part in parts(info))


def altered(value: Any, arrived: Any) -> str | None:
    """What would change in `value`, in words; None if nothing would, or if decoding would raise an error anyway."""
    if value is arrived or _same(value, arrived):
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return None if not isinstance(arrived, str) else "bytes would arrive as text: annotate it as bytes"
    if hasattr(value, "model_dump"):
        return _altered_model(value, arrived)
    if isinstance(value, dict):
        return _altered_dict(value, arrived)
    if isinstance(value, list | tuple) and isinstance(arrived, list | tuple) and len(value) == len(arrived):
        return _first(zip(value, arrived, strict=True))
    if dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct):
        names = _fields(type(value)).values()
        return _first((getattr(value, name), getattr(arrived, name, None)) for name in names)
    if type(value) is type(arrived) and "__eq__" in _methods(type(value)) and _same(value, value):
        return f"{type(value).__name__} would arrive changed: pass a plain value, or an id to look it up by"
    return None


def _altered_dict(value: dict[Any, Any], arrived: Any) -> str | None:
    if isinstance(arrived, dict):
        for key in value:
            if key not in arrived:
                if not isinstance(key, str):
                    return f"the key {key!r} would arrive as text: annotate it, as dict[{type(key).__name__}, ...]"
                return f"there is no field {key!r} in its type"
        return _first((one, arrived[key]) for key, one in value.items())
    fields = _fields(type(arrived))
    if not fields:
        return None
    for key in value:
        if key not in fields:
            return f"{type(arrived).__name__} has no field {key!r}, only {', '.join(map(str, fields))}"
    return _first((one, getattr(arrived, fields[key])) for key, one in value.items())


def _altered_model(value: Any, arrived: Any) -> str | None:
    kind = type(value)
    if not hasattr(arrived, "model_dump"):
        # Without an annotation the model arrives as plain JSON, so that JSON must hold the whole model.
        try:
            arrived = kind.model_validate(arrived)
        except (TypeError, ValueError):
            return f"{kind.__name__} cannot be read again from the JSON that it writes"
        if _same(value, arrived):
            return None
    if type(arrived) is not kind:
        return f"{kind.__name__} would arrive as {type(arrived).__name__}: annotate it as {kind.__name__}"
    fields = [
        name
        for name in getattr(kind, "model_fields", ())
        if not _same(getattr(value, name), getattr(arrived, name))
    ]
    which = f" in {', '.join(fields)}" if fields else ""
    return (
        f"{kind.__name__} would arrive changed{which}. A SecretStr is written as asterisks, for example: "
        "pass the plain value, or an id to look it up by"
    )


def _methods(kind: type) -> set[str]:
    """What the class and its bases define, without what every object has."""
    return {name for one in kind.__mro__[:-1] for name in vars(one)}


def _fields(kind: type) -> dict[str, str]:
    """The fields of a dataclass or Struct: name in JSON to name of the attribute."""
    if issubclass(kind, msgspec.Struct):
        fields = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
        tag = kind.__struct_config__.tag_field
        # The tag of a Struct is in its JSON but is no attribute: its class determines it.
        return fields if tag is None else {tag: "__class__", **fields}
    if dataclasses.is_dataclass(kind):
        return {field.name: field.name for field in dataclasses.fields(kind)}
    return {}


def _first(pairs: Any) -> str | None:
    return next((found for value, arrived in pairs if (found := altered(value, arrived)) is not None), None)


def _same(value: Any, arrived: Any) -> bool:
    try:
        return bool(value == arrived)
    except Exception:
        return True  # the user's own __eq__ may raise anything; that is no reason to refuse the argument
