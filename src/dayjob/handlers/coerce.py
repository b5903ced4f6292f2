"""Walks msgspec types: lists the types inside a type, and corrects values that other languages write differently.

Other languages write 7.0 for an integer, and Lua writes {} for an empty list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import inspect as types

#: Above this a float may not be exactly the integer that was sent.
_EXACT = 2**53

_LISTS = (types.ListType, types.SetType, types.FrozenSetType, types.VarTupleType)
_ARRAYS = (*_LISTS, types.TupleType)
_OBJECTS = (types.StructType, types.DataclassType, types.TypedDictType, types.NamedTupleType)
_ANY = types.AnyType()


def parts(info: types.Type, seen: set[int] | None = None) -> Iterator[types.Type]:
    """`info` and every type inside it, each once, because types may contain themselves."""
    seen = set() if seen is None else seen
    if id(info) in seen:
        return
    seen.add(id(info))
    yield info
    for part in _inside(info):
        yield from parts(part, seen)


def _inside(info: types.Type) -> Iterable[types.Type]:
    if isinstance(info, types.Metadata):
        return (info.type,)
    if isinstance(info, types.UnionType):
        return info.types
    if isinstance(info, types.TupleType):
        return info.item_types
    if isinstance(info, _LISTS):
        return (info.item_type,)
    if isinstance(info, types.DictType):
        return (info.key_type, info.value_type)
    if isinstance(info, _OBJECTS):
        return tuple(field.type for field in info.fields)
    return ()


def lenient(value: Any, info: types.Type) -> Any:
    """Convert 7.0 to 7 and {} to [], at any depth, where the type `info` expects an integer or a list."""
    if isinstance(info, types.Metadata):
        return lenient(value, info.type)
    if isinstance(info, types.UnionType):
        return _lenient_union(value, info)
    if isinstance(value, float):
        whole = isinstance(info, types.IntType) and value.is_integer() and abs(value) <= _EXACT
        return int(value) if whole else value
    if isinstance(info, _ARRAYS) and value == {}:
        return []
    if isinstance(value, list):
        return [lenient(one, kind) for one, kind in zip(value, _item_types(info, len(value)), strict=True)]
    if isinstance(value, dict) and isinstance(info, types.DictType):
        return {key: lenient(one, info.value_type) for key, one in value.items()}
    if isinstance(value, dict) and isinstance(info, _OBJECTS):
        kinds = {field.encode_name: field.type for field in info.fields}
        return {key: lenient(one, kinds.get(key, _ANY)) for key, one in value.items()}
    return value


def _item_types(info: types.Type, length: int) -> Iterable[types.Type]:
    known: Sequence[types.Type] = ()
    if isinstance(info, types.TupleType):
        known = info.item_types
    elif isinstance(info, _LISTS):
        known = [info.item_type] * length
    elif isinstance(info, _OBJECTS):  # a named tuple, or a Struct that is written as an array
        known = [field.type for field in info.fields]
    return [*known, *[_ANY] * length][:length]


def _lenient_union(value: Any, info: types.UnionType) -> Any:
    kinds = info.types
    if isinstance(value, float):
        if any(isinstance(kind, types.FloatType | types.AnyType) for kind in kinds):
            return value
        wanted: tuple[type, ...] = (types.IntType,)
    elif value == {} and any(isinstance(kind, (types.DictType, *_OBJECTS)) for kind in kinds):
        return value
    elif value == {} or isinstance(value, list):
        wanted = (*_ARRAYS, types.NamedTupleType)
    elif isinstance(value, dict):
        wanted = (types.DictType, *_OBJECTS)
    else:
        return value
    for kind in kinds:
        if isinstance(kind, wanted) and _tag_fits(value, kind):
            return lenient(value, kind)
    return value


def _tag_fits(value: Any, info: types.Type) -> bool:
    if not isinstance(info, types.StructType) or info.tag_field is None or not isinstance(value, dict):
        return True
    return bool(value.get(info.tag_field) == info.tag)
