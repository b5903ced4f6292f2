"""Job keys: the text that distinguishes the jobs of a name, from their arguments or their source."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

#: `by="source"` means the source of the job, not an argument.
SOURCE = "source"
#: Longer keys are stored as their first characters and a digest, which together are a key of its own: what consoles show.
MAX_KEY_BYTES = 64
FIRST_CHARACTERS = 24
FIRST_BYTES = 31

_decode = msgspec.json.Decoder(dict[str, Any] | None).decode


def key_text(values: Sequence[Any]) -> str:
    """The key of a job with these JSON values.

    A string is its own key, and a number or a UUID the key of its digits. None and an absent value are the empty key.
    """
    if len(values) == 1:
        return stored_key(_text(values[0]))
    return stored_key(",".join(_text(one).replace("\\", "\\\\").replace(",", "\\,") for one in values))


def stored_key(text: str) -> str:
    """A key as Redis stores it: itself, or its first characters and a digest if it is long or cannot be printed."""
    if len(text) <= MAX_KEY_BYTES and text.isprintable() and len(text.encode()) <= MAX_KEY_BYTES:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    first = "".join(one for one in text[:FIRST_CHARACTERS] if one.isprintable())
    return f"{first.encode()[:FIRST_BYTES].decode(errors='ignore')}~{digest}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, order="sorted").decode()


class KeyReader:
    """Computes the keys of the jobs of one job type. An argument that was not sent has its default."""

    def __init__(self, default: Callable[[str], Any]) -> None:
        self._default = default

    def of(self, by: Sequence[str], args: bytes | msgspec.Raw, source: str | int | None) -> str:
        """The key of a job with these arguments, as JSON, and this source. Arguments that cannot be read have none."""
        given: Mapping[str, Any] = {}
        if tuple(by) != (SOURCE,):
            try:
                given = _decode(args) or {}
            except (msgspec.MsgspecError, ValueError, RecursionError):
                return ""
        return key_text([source if one == SOURCE else self._value(given, one) for one in by])

    def _value(self, given: Mapping[str, Any], name: str) -> Any:
        return given[name] if name in given else self._default(name)
