"""Redaction: hides argument values, by key pattern and by the job type's `redact` option, in all output."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

#: Replaces a hidden value.
HIDDEN = "[redacted]"
#: Replaces all arguments of a job type whose `redact` option is not known.
UNANNOUNCED = "[redacted: no pool has announced this job type]"
#: Values of keys that match this are always hidden.
SECRET = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api_?key|credential|private_?key|authorization", re.IGNORECASE
)
#: More such keys, matched as whole words: `auth` hides http_auth and auth_header, not author or auth_method.
_SECRET_WORDS = re.compile(
    r"(?:^|_)(?:(?:cookie|csrf|xsrf|ssn|iban|cvv|cvc)s?|session|auth)"
    r"(?:_?(?:id|key|value|data|header|code|number|string))?$"
    r"|card_?number|sess_?id$"
)
#: A quick first test: a key that does not match this contains none of those words.
_PERHAPS = re.compile("cookie|sess|csrf|xsrf|ssn|iban|cvv|cvc|auth|card", re.IGNORECASE)
#: The boundaries between the words of a key: characters other than letters and digits, or a capital after a small letter.
_WORD_BREAK = re.compile(r"[^a-zA-Z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
#: Shorter values are not removed from texts, because they occur everywhere.
SHORTEST_SECRET = 3
#: How many values of one job are removed from texts at most.
MAX_SECRETS = 1000
#: In bytes that are not valid JSON: what looks like a key, and like its value.
_KEY = re.compile(rb'"((?:[^"\\]|\\.){1,100})"\s*:\s*')
_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{].*|[^\s,}\]]+', re.DOTALL)
#: A key whose value was redacted by `veiled`.
_REDACTED = re.compile(_KEY.pattern + rb'"%b"' % re.escape(HIDDEN).encode())


def is_hidden(key: object, hide: Collection[str] = ()) -> bool:
    """Whether values under this key are hidden."""
    return key in hide or looks_secret(str(key))


def looks_secret(key: str) -> bool:
    """Whether the name of a key suggests a password, token, cookie, card number or similar."""
    if SECRET.search(key):
        return True
    return bool(_PERHAPS.search(key) and _SECRET_WORDS.search(_WORD_BREAK.sub("_", key).lower()))


def hidden_keys(value: Any, hide: Collection[str] = ()) -> Any:
    """`value` with hidden keys redacted at any depth, and nothing cut."""
    if isinstance(value, dict):
        return {
            key: HIDDEN if is_hidden(key, hide) else hidden_keys(item, hide) for key, item in value.items()
        }
    return [hidden_keys(item, hide) for item in value] if isinstance(value, list) else value


def shown(value: Any, hide: Collection[str] = (), *, secrets: Sequence[str] = (), depth: int = 6) -> Any:
    """`value` with hidden keys redacted at any depth, and long and deep parts cut.

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
    """The values under hidden keys, as plain text and as repr and JSON write them, longest first."""
    found: set[str] = set()
    for leaf in _hidden_leaves(value, hide):
        text = str(leaf)
        if len(text) < SHORTEST_SECRET:
            continue
        if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
            # Every form is the text itself. Consoles do this for thousands of values, nearly all of them plain.
            found.add(text)
        else:
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
    """All values inside `value`, as texts to redact, longest first."""
    return secrets_in({"secret": value})


def without(text: str, secrets: Sequence[str]) -> str:
    """`text` with every secret redacted. Call it before cutting the text, because part of a secret is not recognised."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def veiled(raw: bytes, hide: Collection[str] = ()) -> bytes:
    """Bytes that are not valid JSON, with everything that looks like the value of a hidden key redacted.

    The end of a list or object cannot be found in such bytes, so everything after its start is redacted.
    """
    parts: list[bytes] = []
    at = 0
    for key in _KEY.finditer(raw):
        if key.start() >= at and is_hidden(key[1].decode("utf-8", "replace"), hide):
            value = _VALUE.match(raw, key.end())
            parts += (raw[at : key.end()], b'"%b"' % HIDDEN.encode())
            at = key.end() if value is None else value.end()
    return b"".join((*parts, raw[at:]))


def still_redacted(text: bytes, original: bytes) -> list[str]:
    """The keys of `text` whose value is `[redacted]` and was something else in `original`."""
    there = Counter(_REDACTED.findall(original))
    return sorted(key.decode("utf-8", "replace") for key in Counter(_REDACTED.findall(text)) - there)


def _hidden_leaves(value: Any, hide: Collection[str]) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item) if is_hidden(key, hide) else _hidden_leaves(item, hide)
    elif isinstance(value, list):
        for item in value:
            yield from _hidden_leaves(item, hide)


def _leaves(value: Any) -> Iterator[Any]:
    """All scalar values inside a value, at any depth."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield value
