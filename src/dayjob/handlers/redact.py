"""What must not be shown: argument values by key pattern and by job type, in text that people see."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

#: What takes the place of a value.
HIDDEN = "[redacted]"
#: What takes the place of all arguments of a job type whose `redact` option is not known.
UNANNOUNCED = "[redacted: no pool has announced this job type]"
#: Keys whose values are hidden wherever arguments are shown.
SECRET = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api_?key|credential|private_?key|authorization", re.IGNORECASE
)
#: More of them, as whole words at the end of a key: `auth` hides http_auth and auth_header, not author or auth_method.
_SECRET_WORDS = re.compile(
    r"(?:^|_)(?:(?:cookie|csrf|xsrf|ssn|iban|cvv|cvc)s?|session|auth)"
    r"(?:_?(?:id|key|value|data|header|code|number|string))?$"
    r"|card_?number|sess_?id$"
)
#: A key without any of this has none of those words; most keys are done with after this.
_PERHAPS = re.compile("cookie|sess|csrf|xsrf|ssn|iban|cvv|cvc|auth|card", re.IGNORECASE)
#: Where a word of a key begins: after what is no letter or digit, and at a capital after a small letter.
_WORD_BREAK = re.compile(r"[^a-zA-Z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
#: Shorter values are not looked for in texts: nothing would be left of them.
SHORTEST_SECRET = 3
#: How many values of one job are looked for in texts.
MAX_SECRETS = 1000
#: In bytes that are no JSON: what looks like a key, and like its value.
_KEY = re.compile(rb'"((?:[^"\\]|\\.){1,100})"\s*:\s*')
_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{].*|[^\s,}\]]+', re.DOTALL)


def is_hidden(key: object, hide: Collection[str] = ()) -> bool:
    """Whether values under this key are hidden."""
    return key in hide or looks_secret(str(key))


def looks_secret(key: str) -> bool:
    """Whether a key is named like those of passwords, tokens, cookies, cards and the like."""
    if SECRET.search(key):
        return True
    return bool(_PERHAPS.search(key) and _SECRET_WORDS.search(_WORD_BREAK.sub("_", key).lower()))


def shown(value: Any, hide: Collection[str] = (), *, secrets: Sequence[str] = (), depth: int = 6) -> Any:
    """`value` as it may be shown: keys that match are hidden, at any depth; long and deep parts are cut.

    `secrets` are texts that must not appear in any string of it.
    """
    if depth <= 0:
        return "..."
    if isinstance(value, dict):
        return {
            key: HIDDEN if is_hidden(key, hide) else shown(item, hide, secrets=secrets, depth=depth - 1)
            for key, item in list(value.items())[:100]
        }
    if isinstance(value, list):
        return [shown(item, hide, secrets=secrets, depth=depth - 1) for item in value[:100]]
    if isinstance(value, str):
        value = without(value, secrets)
        return value if len(value) <= 1000 else value[:1000] + "..."
    return value


def secrets_in(value: Any, hide: Collection[str] = ()) -> list[str]:
    """The texts that must not be shown: values under hidden keys, plain and as repr or JSON writes them; longest first."""
    found: set[str] = set()
    for leaf in _hidden_leaves(value, hide):
        text = str(leaf)
        if len(text) >= SHORTEST_SECRET:
            found |= {
                text,
                repr(text)[1:-1],
                json.dumps(text)[1:-1],
                json.dumps(text, ensure_ascii=False)[1:-1],
            }
        if len(found) >= MAX_SECRETS:
            break
    return sorted(found, key=len, reverse=True)


def texts_in(value: Any) -> list[str]:
    """All values of arguments as texts that must not be shown; longest first."""
    return secrets_in({"secret": value})


def without(text: str, secrets: Sequence[str]) -> str:
    """`text` with every secret taken out. Do this before it is cut: half a secret is still one."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def veiled(raw: bytes, hide: Collection[str] = ()) -> bytes:
    """Bytes that cannot be read as JSON, with what looks like the value of a hidden key taken out.

    Of a list or an object nobody knows the end: all that follows goes with it.
    """
    parts: list[bytes] = []
    at = 0
    for key in _KEY.finditer(raw):
        if key.start() >= at and is_hidden(key[1].decode("utf-8", "replace"), hide):
            value = _VALUE.match(raw, key.end())
            parts += (raw[at : key.end()], b'"%b"' % HIDDEN.encode())
            at = key.end() if value is None else value.end()
    return b"".join((*parts, raw[at:]))


def _hidden_leaves(value: Any, hide: Collection[str]) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item) if is_hidden(key, hide) else _hidden_leaves(item, hide)
    elif isinstance(value, list):
        for item in value:
            yield from _hidden_leaves(item, hide)


def _leaves(value: Any) -> Iterator[Any]:
    """What is inside a value, at any depth."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield value
