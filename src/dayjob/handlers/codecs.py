"""Codecs: how values travel that JSON has no type for.

A codec belongs to one class. dayjob has codecs for paths, IP addresses and time zones, and a pool may add its own. Pydantic
models and subclasses of str, int and float need none.
"""

from __future__ import annotations

import ipaddress
import math
import pathlib
import zoneinfo
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from dayjob.errors import BadOption

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How the objects of one class travel: `to_json` returns plain JSON values, and `from_json` makes the object again."""

    type: type[T]
    to_json: Callable[[T], Any]
    from_json: Callable[[Any], T]

    def __post_init__(self) -> None:
        if not isinstance(self.type, type):
            raise BadOption(f"Codec({self.type!r}, ...): the first argument must be a class")
        if not callable(self.to_json) or not callable(self.from_json):
            raise BadOption(f"Codec({self.type.__name__}, ...): to_json and from_json must be functions")


def _zone_key(zone: zoneinfo.ZoneInfo) -> str:
    if zone.key is None:
        raise TypeError("this ZoneInfo has no key, so it cannot be found again")
    return zone.key


_PATHS: tuple[type[pathlib.PurePath], ...] = (
    pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath,
    pathlib.Path, pathlib.PosixPath, pathlib.WindowsPath,
)  # fmt: skip
_ADDRESSES: tuple[type[Any], ...] = (
    ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network,
    ipaddress.IPv4Interface, ipaddress.IPv6Interface,
)  # fmt: skip
_BUILT_IN: tuple[Codec[Any], ...] = (
    *(Codec(kind, str, kind) for kind in (*_PATHS, *_ADDRESSES)),
    Codec(zoneinfo.ZoneInfo, _zone_key, zoneinfo.ZoneInfo),
)


class Codecs:
    """The codecs of one pool."""

    def __init__(self, own: Iterable[Codec[Any]] = ()) -> None:
        self._by_class: dict[type, Codec[Any]] = {one.type: one for one in _BUILT_IN}
        for codec in own:
            if not isinstance(codec, Codec):
                raise BadOption(
                    f"WorkerPool: codecs: {codec!r} is no Codec: write Codec(Money, to_json, from_json)"
                )
            self._by_class[codec.type] = codec
        #: Encodes a value as JSON. Raises one of arguments.UNFIT.
        self.encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=self.dump).encode

    def dump(self, value: Any) -> Any:
        """JSON values for an object that msgspec cannot encode. Raises TypeError."""
        for kind in type(value).__mro__:
            codec = self._by_class.get(kind)
            if codec is not None:
                return codec.to_json(value)
        # Pydantic models are recognised by their methods, because dayjob does not import pydantic.
        if hasattr(value, "model_dump"):
            # By alias and without computed fields, so that the model can read its own JSON.
            return value.model_dump(mode="json", by_alias=True, round_trip=True)
        return _as_base_type(value)

    def not_finite(self, value: Any) -> float | None:
        """The first NaN or infinity in a value, which JSON cannot carry and msgspec would silently encode as null."""
        return next(_unbounded(msgspec.to_builtins(value, enc_hook=self._dump_unless_raw)), None)

    def _dump_unless_raw(self, value: Any) -> Any:
        # It is JSON already.
        return None if isinstance(value, msgspec.Raw) else self.dump(value)

    def load(self, kind: Any, value: Any) -> Any:
        """An object of the class `kind` from JSON values. Raises TypeError or ValueError."""
        if kind is object:
            return value
        codec = self._by_class.get(kind)
        if codec is None:
            return kind.model_validate(value)
        try:
            return codec.from_json(value)
        except Exception as error:
            # The user's function may raise anything. Only these two become errors that name the argument.
            raise ValueError(f"{kind.__name__}: {error}") from None

    def can_load(self, kind: Any) -> bool:
        """Whether `load` knows the class."""
        return kind is object or kind in self._by_class or hasattr(kind, "model_validate")

    def decoder(self, kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
        """A function that decodes JSON to this type."""
        return msgspec.json.Decoder(kind, dec_hook=self.load).decode

    def convert(self, value: Any, kind: Any) -> Any:
        """A value of this type from plain JSON values. Raises msgspec.ValidationError."""
        return msgspec.convert(value, kind, dec_hook=self.load, str_keys=True)


def _as_base_type(value: Any) -> Any:
    """The str, int or float that an object of a subclass is, such as Django's SafeString; or a numpy scalar's value."""
    # Not str(value): a subclass may override __str__ and return itself.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if getattr(value, "shape", None) == () and hasattr(value, "dtype") and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"there is no JSON for the type {type(value).__name__}")


#: The codecs of programs that have no job code.
DEFAULT = Codecs()


def _unbounded(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield value
    elif isinstance(value, dict | list | tuple | set | frozenset):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _unbounded(one)
